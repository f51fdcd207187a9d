// StepScheduler: runs a whole graph on one thread, in a seeded order.
//
// A test tool: with the same seed the same order of work, with another seed another one, so
// that a test can try hundreds of schedules. Results must not depend on it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "runtime/engine/executor.hpp"

namespace colibri {

class StepScheduler final : public Executor {
 public:
  explicit StepScheduler(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}

  void schedule(Actor& actor, bool foreign) override;
  // Tiles run inline, in a shuffled order.
  void parallel(std::size_t tiles, std::size_t workers, void (*body)(void*, std::size_t),
                void* object) override;
  // Runs scheduled actors until `done`; waits for foreign threads (reads) when none is scheduled.
  void run_until(const std::function<bool()>& done);
  // Forgets what is scheduled: its actors are about to go.
  void clear();

 private:
  std::uint64_t random() noexcept;

  std::uint64_t state_;
  std::mutex mutex_;
  std::condition_variable scheduled_;
  std::vector<Actor*> ready_;
  std::vector<std::size_t> order_;  // of the tiles of one call of parallel
};

}  // namespace colibri
