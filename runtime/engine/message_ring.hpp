// MessageRing: the ring of an edge, for one producer and one consumer, made for few trips of cache lines.
//
// Most of what a message costs between two processors is lines that travel. Here a message is one line; each
// side counts on a line of its own, which the other looks at only when what it saw last is used up (as
// in MCRingBuffer of Lee, Bu and Chandranmenon, IPDPS 2010, without its batches: a message is visible at
// once). So while messages queue up, one line travels for each.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <colibri/messages.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace colibri {

inline constexpr std::size_t kCacheLine = 64;  // bytes; no processor that we run on has smaller ones

class MessageRing {
 public:
  // `first`: where counting begins; counts run on past 2^32, and tests begin shortly before.
  explicit MessageRing(std::uint32_t capacity, std::uint32_t first = 0)
      : capacity_(capacity),
        mask_(std::bit_ceil(std::max(capacity, 1U)) - 1),
        cells_(std::make_unique<Cell[]>(std::size_t{mask_} + 1)),
        pushed_(first),
        popped_seen_(first),
        popped_(first),
        pushed_seen_(first) {}

  std::uint32_t capacity() const noexcept { return capacity_; }
  // Any thread, a snapshot. Never above the capacity, and exact for a side while the other does nothing.
  std::uint32_t level() const noexcept {
    // In this order: what is popped meanwhile makes the difference smaller, and never negative.
    const std::uint32_t popped = popped_.load(std::memory_order_seq_cst);
    const std::uint32_t pushed = pushed_.load(std::memory_order_seq_cst);
    return std::min(pushed - popped, capacity_);
  }
  // The highest level that either side has seen when it looked at the other's count: between two such looks
  // it may have been higher, by what came while the consumer took what it knew of.
  std::uint32_t high_water() const noexcept {
    return std::max(seen_by_producer_.load(std::memory_order_relaxed),
                    seen_by_consumer_.load(std::memory_order_relaxed));
  }

  // Producer. False when full.
  bool push(const Message& message) noexcept {
    if (!has_room(1)) return false;
    const std::uint32_t pushed = pushed_.load(std::memory_order_relaxed);
    cells_[pushed & mask_].message = message;
    pushed_.store(pushed + 1, std::memory_order_seq_cst);
    return true;
  }
  // Producer. Whether `count` messages fit.
  bool has_room(std::uint32_t count) noexcept {
    const std::uint32_t pushed = pushed_.load(std::memory_order_relaxed);
    if (pushed - popped_seen_ + count <= capacity_) return true;
    popped_seen_ = popped_.load(std::memory_order_seq_cst);
    raise(seen_by_producer_, pushed - popped_seen_);
    return pushed - popped_seen_ + count <= capacity_;
  }

  // Consumer. False when empty.
  bool pop(Message& message) noexcept {
    const std::uint32_t popped = popped_.load(std::memory_order_relaxed);
    if (popped == pushed_seen_) {
      pushed_seen_ = pushed_.load(std::memory_order_seq_cst);
      if (popped == pushed_seen_) return false;
      raise(seen_by_consumer_, pushed_seen_ - popped);
    }
    message = cells_[popped & mask_].message;
    popped_.store(popped + 1, std::memory_order_seq_cst);
    return true;
  }

 private:
  static void raise(std::atomic<std::uint32_t>& highest, std::uint32_t level) noexcept {
    if (level > highest.load(std::memory_order_relaxed)) highest.store(level, std::memory_order_relaxed);
  }

  struct alignas(kCacheLine) Cell {
    Message message;
  };
  static_assert(sizeof(Cell) == kCacheLine, "a message that takes two lines costs twice as much to send");

  const std::uint32_t capacity_;
  const std::uint32_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(kCacheLine) std::atomic<std::uint32_t> pushed_;  // written by the producer, as the next two
  std::uint32_t popped_seen_;
  std::atomic<std::uint32_t> seen_by_producer_{0};
  alignas(kCacheLine) std::atomic<std::uint32_t> popped_;  // written by the consumer, as the next two
  std::uint32_t pushed_seen_;
  std::atomic<std::uint32_t> seen_by_consumer_{0};
};

}  // namespace colibri
