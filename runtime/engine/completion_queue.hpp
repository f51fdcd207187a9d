// CompletionQueue: what threads outside the graph post to an actor. Any number of producers, one consumer.
//
// The bounded queue of D. Vyukov: each cell carries the turn at which it may be written or read, so that a
// producer claims a cell with one exchange, and the consumer looks at nothing but the next cell: one line
// that travels for each message. A producer that is stopped between its claim and its write holds up what was
// posted after it, till it goes on; it wakes the consumer then.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <colibri/messages.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/engine/message_ring.hpp"

namespace colibri {

class CompletionQueue {
 public:
  // Holds at least `capacity` messages.
  explicit CompletionQueue(std::uint32_t capacity)
      : mask_(std::bit_ceil(std::uint64_t{std::max(capacity, 2U)}) - 1),
        cells_(std::make_unique<Cell[]>(mask_ + 1)) {
    for (std::uint64_t i = 0; i <= mask_; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }

  // Any thread. False when full.
  bool push(const Message& message) noexcept {
    std::uint64_t place = claimed_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[place & mask_];
      const std::uint64_t turn = cell.turn.load(std::memory_order_acquire);
      if (turn == place) {
        if (!claimed_.compare_exchange_weak(place, place + 1, std::memory_order_relaxed)) continue;
        cell.message = message;
        cell.turn.store(place + 1, std::memory_order_release);
        return true;
      }
      if (turn < place) return false;  // not read yet since the last time round
      place = claimed_.load(std::memory_order_relaxed);
    }
  }

  // The consumer. False when nothing was posted, or what is next is being written.
  bool pop(Message& message) noexcept {
    Cell& cell = cells_[next_ & mask_];
    if (cell.turn.load(std::memory_order_acquire) != next_ + 1) return false;
    message = cell.message;
    cell.turn.store(next_ + mask_ + 1, std::memory_order_release);
    ++next_;
    return true;
  }

 private:
  struct alignas(kCacheLine) Cell {
    std::atomic<std::uint64_t> turn{0};  // its place: free for that message; one more: holds it
    Message message;
  };
  static_assert(sizeof(Cell) == kCacheLine, "one line for each message");

  const std::uint64_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(kCacheLine) std::atomic<std::uint64_t> claimed_{0};  // producers
  alignas(kCacheLine) std::uint64_t next_ = 0;                 // consumer
};

}  // namespace colibri
