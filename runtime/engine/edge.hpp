// Edge: a bounded connection from one output port to one input port.
//
// A ring with one producer and one consumer, its own level counter and high-water mark.
// A producer that finds no room leaves a mark and is woken by the next pop; an ended edge
// gets no more messages.
#pragma once

#include <atomic>
#include <boost/lockfree/spsc_queue.hpp>
#include <colibri/messages.hpp>
#include <cstdint>
#include <string>

namespace colibri {

class Actor;

class Edge {
 public:
  explicit Edge(std::uint32_t capacity) : capacity_(capacity), ring_(capacity) {}

  std::uint32_t capacity() const noexcept { return capacity_; }
  std::uint32_t level() const noexcept { return level_.load(std::memory_order_seq_cst); }
  std::uint32_t high_water() const noexcept { return high_water_.load(std::memory_order_relaxed); }

  // Producer. False when full.
  bool push(const Message& message) noexcept {
    if (level() >= capacity_ || !ring_.push(message)) return false;
    const std::uint32_t level = level_.fetch_add(1, std::memory_order_seq_cst) + 1;
    if (level > high_water_.load(std::memory_order_relaxed))
      high_water_.store(level, std::memory_order_relaxed);
    return true;
  }
  std::uint32_t room() const noexcept {
    const std::uint32_t level = this->level();
    return level >= capacity_ ? 0 : capacity_ - level;
  }
  // Asks to be woken by the next pop. Look at room() again after this call.
  void wait_for_room() noexcept { producer_waits_.store(true, std::memory_order_seq_cst); }
  void end() noexcept { ended_.store(true, std::memory_order_seq_cst); }

  // Consumer. `wake_producer` is set when the producer asked for it.
  bool pop(Message& message, bool& wake_producer) noexcept {
    if (!ring_.pop(message)) return false;
    level_.fetch_sub(1, std::memory_order_seq_cst);
    wake_producer = producer_waits_.load(std::memory_order_seq_cst) && producer_waits_.exchange(false);
    return true;
  }
  // True when nothing is in it and nothing will come. Read before a last look at the ring, never after.
  bool ended() const noexcept { return ended_.load(std::memory_order_seq_cst); }
  bool empty() const noexcept { return level() == 0; }

  Actor* producer = nullptr;
  Actor* consumer = nullptr;
  bool crosses_placements = false;
  std::string name;  // "route.waves -> combine.waves"

 private:
  const std::uint32_t capacity_;
  boost::lockfree::spsc_queue<Message> ring_;
  std::atomic<std::uint32_t> level_{0};
  std::atomic<std::uint32_t> high_water_{0};
  std::atomic<bool> producer_waits_{false};
  std::atomic<bool> ended_{false};
};

}  // namespace colibri
