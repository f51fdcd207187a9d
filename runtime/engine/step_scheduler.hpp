// StepScheduler: runs a whole graph on one thread, in a seeded order.
//
// A test tool: with the same seed the same order of work, with another seed another one, so
// that a test can try hundreds of schedules. Results must not depend on it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/engine/executor.hpp"

namespace colibri {

class StepScheduler final : public Executor {
 public:
  // idle: called when no actor can run; true: it made something happen. False, or none: foreign threads
  // (reads) are waited for. A virtual clock is moved here, so that a job has an exact duration.
  explicit StepScheduler(std::uint64_t seed, std::function<bool()> idle = {})
      : state_(seed * 0x9e3779b97f4a7c15ULL + 1), idle_(std::move(idle)) {}

  // Called with the name of the stage before each tile of its parallel work, so that it can cost virtual
  // time.
  void before_tile(std::function<void(std::string_view)> charge) { charge_ = std::move(charge); }

  // Stages that run before each call of the others, as if they had a processor of their own.
  void run_first(std::function<bool(std::string_view)> first) { first_ = std::move(first); }
  int calls_per_run() const noexcept override { return first_ ? 1 : Executor::calls_per_run(); }
  // Wakes at once, whatever the clock says: the order depends on the seed alone.
  std::uint64_t most_unannounced_ns() const noexcept override { return 0; }

  void schedule(Actor& actor, bool foreign) override;
  // Where stages run first, these run last; else in any order, like all.
  void schedule_last(Actor& actor) override;
  // Tiles run inline, in a shuffled order.
  void parallel(std::size_t tiles, std::size_t workers, void (*body)(void*, std::size_t),
                void* object) override;
  // Runs scheduled actors until `done`.
  void run_until(const std::function<bool()>& done);
  // Forgets what is scheduled: its actors are about to go.
  void clear();

 private:
  std::uint64_t random() noexcept;

  std::uint64_t state_;
  std::function<bool()> idle_;
  std::function<void(std::string_view)> charge_;
  std::function<bool(std::string_view)> first_;
  const Actor* running_ = nullptr;
  std::mutex mutex_;
  std::condition_variable scheduled_;
  std::vector<Actor*> ready_, last_;
  std::vector<std::size_t> order_;  // of the tiles of one call of parallel
};

}  // namespace colibri
