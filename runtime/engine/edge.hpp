// Edge: a bounded connection from one output port to one input port.
//
// A ring (message_ring.hpp) and what its two ends tell each other: a producer that finds no room leaves a
// mark and is woken by the next pop; an ended edge gets no more messages.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime/engine/message_ring.hpp"

namespace colibri {

class Actor;

class Edge {
 public:
  explicit Edge(std::uint32_t capacity) : ring_(capacity) {}

  std::uint32_t capacity() const noexcept { return ring_.capacity(); }
  std::uint32_t level() const noexcept { return ring_.level(); }
  std::uint32_t high_water() const noexcept { return ring_.high_water(); }

  // Producer. False when full.
  bool push(const Message& message) noexcept { return ring_.push(message); }
  bool has_room(std::uint32_t count) noexcept { return ring_.has_room(count); }
  std::uint32_t room() const noexcept { return capacity() - level(); }
  // Asks to be woken by the next pop. Look again after this call.
  void wait_for_room() noexcept { producer_waits_.store(true, std::memory_order_seq_cst); }
  void end() noexcept { ended_.store(true, std::memory_order_seq_cst); }

  // Consumer. `wake_producer` is set when the producer asked for it.
  bool pop(Message& message, bool& wake_producer) noexcept {
    if (!ring_.pop(message)) return false;
    wake_producer = producer_waits_.load(std::memory_order_seq_cst) && producer_waits_.exchange(false);
    return true;
  }
  // True when nothing is in it and nothing will come. Read before a last look at the ring, never after.
  bool ended() const noexcept { return ended_.load(std::memory_order_seq_cst); }
  bool empty() const noexcept { return level() == 0; }

  Actor* producer = nullptr;
  Actor* consumer = nullptr;
  Actor* passed = nullptr;  // where the edge was declared to lead, when messages go past that stage
  bool crosses_placements = false;
  bool unannounced = false;  // the producer has sent something and not woken the consumer yet
  std::string name;          // "route.waves -> combine.waves"

 private:
  MessageRing ring_;
  std::atomic<bool> producer_waits_{false};
  std::atomic<bool> ended_{false};
};

}  // namespace colibri
