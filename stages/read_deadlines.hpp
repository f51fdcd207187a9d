// ReadDeadlines: how old the reads into each slot are.
//
// A read that waits behind others for its turn is not late by itself, so the deadline starts
// anew with each completion. The slot of an overdue read stays taken until its completion
// arrives: the drive may still write into it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace colibri {

class ReadDeadlines {
 public:
  ReadDeadlines() = default;
  ReadDeadlines(std::uint32_t slots, std::chrono::milliseconds limit)
      : limit_(limit), submitted_(slots), overdue_(slots) {}

  std::chrono::milliseconds limit() const noexcept { return limit_; }
  void set_limit(std::chrono::milliseconds limit) noexcept { limit_ = limit; }
  void submitted(std::uint32_t slot) noexcept {
    submitted_[slot] = Clock::now();
    ++in_flight_;
  }
  // What reads in flight wait for has changed: from now on they have the whole limit again.
  void restart() noexcept { last_arrival_ = Clock::now(); }
  // True when the read was overdue: nobody waits for it any more.
  bool completed(std::uint32_t slot) noexcept {
    last_arrival_ = Clock::now();
    --in_flight_;
    const bool was_overdue = overdue_[slot] != 0;
    overdue_slots_ -= was_overdue ? 1 : 0;
    overdue_[slot] = 0;
    return was_overdue;
  }

  std::uint32_t in_flight() const noexcept { return in_flight_; }
  bool overdue(std::uint32_t slot) const noexcept { return overdue_[slot] != 0; }
  // No read in flight but overdue ones.
  bool nothing_else_in_flight() const noexcept { return in_flight_ == overdue_slots_; }
  bool any_overdue() const noexcept { return overdue_slots_ > 0; }
  // The slot's read is past its deadline from now on, if it is. False when it is not, or was already.
  bool expire(std::uint32_t slot) noexcept {
    if (overdue(slot) || Clock::now() - std::max(submitted_[slot], last_arrival_) <= limit_) return false;
    overdue_[slot] = 1;
    ++overdue_slots_;
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds limit_{};
  std::vector<Clock::time_point> submitted_;  // [slots] when the read into it was
  std::vector<std::uint8_t> overdue_;         // [slots] its read is past the deadline and not completed
  std::uint32_t overdue_slots_ = 0;
  std::uint32_t in_flight_ = 0;  // reads submitted and not completed
  Clock::time_point last_arrival_;
};

}  // namespace colibri
