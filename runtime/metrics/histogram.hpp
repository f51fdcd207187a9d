// Histogram: durations in nanoseconds with two significant digits.
//
// HDR-like: each power of two is cut into 64 buckets, so a value is known within 1.6 %.
// Plain memory with one writer; a reader may see a count that is one behind.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace colibri {

class Histogram {
 public:
  void add(std::uint64_t nanoseconds) noexcept {
    std::atomic<std::uint32_t>& bucket = counts_[index_of(nanoseconds)];
    bucket.store(bucket.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (nanoseconds > max_.load(std::memory_order_relaxed))
      max_.store(nanoseconds, std::memory_order_relaxed);
  }
  std::uint64_t count() const noexcept;
  std::uint64_t max() const noexcept { return max_.load(std::memory_order_relaxed); }
  // The smallest value v such that at least share (0..1) of all values are <= v (upper end of its bucket,
  // never above the largest value); 0 when there is none.
  std::uint64_t quantile(double share) const noexcept;

 private:
  static constexpr unsigned kSubBits = 6;
  static constexpr unsigned kExponents = 64 - kSubBits;
  static constexpr std::size_t kBuckets = std::size_t{kExponents + 1} << kSubBits;

  static std::size_t index_of(std::uint64_t value) noexcept {
    if (value < (std::uint64_t{1} << kSubBits)) return value;
    const unsigned exponent = static_cast<unsigned>(std::bit_width(value)) - kSubBits - 1;
    return (std::size_t{exponent + 1} << kSubBits) + ((value >> exponent) & ((1U << kSubBits) - 1));
  }
  static std::uint64_t upper_end(std::size_t index) noexcept;

  std::array<std::atomic<std::uint32_t>, kBuckets> counts_{};
  std::atomic<std::uint64_t> max_{0};
};

}  // namespace colibri
