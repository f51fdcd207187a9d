// HopEstimate: what the hops of a run cost, from timed samples among which some are wrong.
//
// A sample is time by the clock: a thread that the system takes off its CPU in the middle of a hop adds a
// whole time slice, a thousand times the hop. So a sample counts for what it was, but for a few times the
// usual one at most. The usual one is a running median: it moves by a small factor towards each sample,
// which neither one sample nor a burst of them can carry off. One writer.
#pragma once

#include <algorithm>
#include <cstdint>

namespace colibri {

class HopEstimate {
 public:
  // The nanoseconds that a sample counts for; it covers `calls` calls into a stage, or one look for work.
  std::uint64_t sample(std::uint64_t nanoseconds, int calls) noexcept {
    const double count = std::max(calls, 1);
    const double each = static_cast<double>(nanoseconds) / count;
    usual_ = std::max(each > usual_ ? usual_ * kStep : usual_ / kStep, kLeast);
    return static_cast<std::uint64_t>(std::min(each, kMostTimes * usual_) * count);
  }

 private:
  static constexpr double kFirst = 500;    // ns; some steps away from any machine's
  static constexpr double kLeast = 10;     // ns
  static constexpr double kStep = 1.05;    // from 10 ns to 100 us in 190 samples
  static constexpr double kMostTimes = 8;  // hops that miss caches or wake threads are that much longer

  double usual_ = kFirst;
};

}  // namespace colibri
