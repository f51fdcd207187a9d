// HintGate: whether a record is worth reading before anybody demands it.
//
// A hint gains what of its read is over when the demand comes. One that nobody demands costs later
// reads what of it is left then, where the drive serves one read at the expense of another. Both
// follow from three means: how long a read takes alone, how much of that each read before it adds,
// and how long the drive has between the last demanded record of a visit and the next demand.
// Probabilities are measured as well: those named for all experts say too much of those that are
// not in memory, which are the rarer ones. None of this changes a result, so it may come from a clock.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace colibri {

class HintGate {
 public:
  using Time = std::chrono::nanoseconds;  // of any clock that does not go back

  explicit HintGate(std::uint32_t slots = 0) : flights_(slots) {}

  // A read into a slot that has none in flight; `demanded`: somebody waits for it.
  void submitted(std::uint32_t slot, bool demanded, Time now) noexcept;
  // Somebody waits for a read that was submitted for a hint.
  void demanded(std::uint32_t slot) noexcept;
  // `read`: the record was read; otherwise the read was cancelled or failed, and tells nothing.
  void ended(std::uint32_t slot, bool read, Time now) noexcept;
  // The first demand of a visit has come.
  void visit_begins(Time now) noexcept;

  // A hint's visit is over, and has demanded the record or not.
  void settled(float named, bool came) noexcept;
  // That a record named with this probability is demanded.
  float probability(float named) const noexcept;
  // The probability from which on a hint is worth a read now.
  float threshold(Time now) const noexcept;

 private:
  struct Flight {
    Time since{0};
    std::uint32_t position = 0;  // reads in flight when it began, and itself; 0: none in flight
    bool demanded = false;
  };
  // A running mean that follows the job.
  struct Mean {
    double value = 0;
    std::uint32_t samples = 0;
    void add(double sample) noexcept;
  };
  // Of hints whose named probability is in one range.
  struct Outcomes {
    float named = 0, came = 0;
  };
  // Of equal width up to kEqual of them; each half as wide as the one before from there on, since sweeps ask
  // how far from certain a hint is.
  static constexpr std::size_t kEqual = 7, kRanges = 18;
  static std::size_t range_of(float named) noexcept;

  std::vector<Flight> flights_;  // [slots]
  std::uint32_t in_flight_ = 0, demanded_ = 0;
  bool visited_ = false;  // a visit has begun
  Time quiet_since_{0};   // no demanded read in flight; meaningless while there are
  Mean alone_;            // nanoseconds of a read that finds the drive idle
  Mean sharing_;          // 0: reads in flight do not slow each other down; 1: the drive does one at a time
  Mean gap_;              // nanoseconds from the last demanded record to the next visit
  Mean gap_error_;        // by which gaps differ from that
  std::array<Outcomes, kRanges> outcomes_{};
};

}  // namespace colibri
