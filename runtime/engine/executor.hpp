// Executor: gives actors a thread. The graph executor does it on oneTBB, the stepped
// scheduler on the calling thread in a seeded order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace colibri {

class Actor;

class Executor {
 public:
  virtual ~Executor() = default;
  // Lets actor.run() be called soon, never twice at the same time. `foreign` says that the caller may be
  // outside the actor's placement.
  virtual void schedule(Actor& actor, bool foreign) = 0;
  // The same, behind what is due already, as far as there is an order: at once where a thread has nothing to
  // do. For what is not urgent. Called on a thread of the actor's placement.
  virtual void schedule_last(Actor& actor) { schedule(actor, /*foreign=*/true); }
  // Calls of one run of an actor, after which others get their turn.
  virtual int calls_per_run() const noexcept { return 32; }
  // How long what an actor has sent may lie while its run goes on, before those who wait for it are woken.
  // 0: not at all; then a run never hands over to another one.
  virtual std::uint64_t most_unannounced_ns() const noexcept { return 5000; }
  // Calls body(object, tile) for all tiles on at most `workers` threads; returns when all are done. What a
  // tile throws is thrown again here, when no tile runs any more.
  virtual void parallel(std::size_t tiles, std::size_t workers, void (*body)(void*, std::size_t),
                        void* object) = 0;
};

}  // namespace colibri
