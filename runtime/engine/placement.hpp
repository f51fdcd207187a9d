// Placement: a set of CPUs with one oneTBB arena and one flow graph, shared by the stages
// placed there.
//
// The graph is built inside its arena, so its tasks run there. Threads that enter the arena
// are pinned to the placement's CPUs by an observer and get their old affinity back when
// they leave (arena constraints alone bind nothing on machines with one NUMA node).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/engine/executor.hpp"

namespace colibri {

struct PlacementSpec {
  std::string name;                 // "default", "node 1", "cpus 2-3"
  std::vector<std::uint32_t> cpus;  // empty: threads are not pinned
  std::uint32_t threads = 1;        // worker slots of the arena
};

// One for each placement of a pipeline.
class Placement final : public Executor {
 public:
  explicit Placement(PlacementSpec spec);
  ~Placement() override;  // waits until no task runs

  const PlacementSpec& spec() const noexcept { return spec_; }
  // Makes the actor's node. Before the first schedule.
  void add(Actor& actor);
  void schedule(Actor& actor, bool foreign) override;
  void parallel(std::size_t tiles, std::size_t workers, void (*body)(void*, std::size_t),
                void* object) override;
  // Waits until the graph is idle.
  void wait_idle();

 private:
  struct Impl;
  struct Node;
  void run_in_a_row(Actor& actor);

  PlacementSpec spec_;
  std::unique_ptr<Impl> impl_;
};

// Worker slots that all arenas together may use now; compare with 1 + the sum of threads.
std::size_t allowed_parallelism();

}  // namespace colibri
