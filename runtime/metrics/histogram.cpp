#include "runtime/metrics/histogram.hpp"

#include <algorithm>
#include <cmath>

namespace colibri {

std::uint64_t Histogram::count() const noexcept {
  std::uint64_t total = 0;
  for (const auto& bucket : counts_) total += bucket.load(std::memory_order_relaxed);
  return total;
}

std::uint64_t Histogram::upper_end(std::size_t index) noexcept {
  if (index < (std::size_t{1} << kSubBits)) return index;
  const unsigned exponent = static_cast<unsigned>(index >> kSubBits) - 1;
  const std::uint64_t mantissa = (std::uint64_t{1} << kSubBits) | (index & ((1U << kSubBits) - 1));
  return ((mantissa + 1) << exponent) - 1;
}

std::uint64_t Histogram::quantile(double share) const noexcept {
  const std::uint64_t total = count();
  if (total == 0) return 0;
  const auto wanted =
      std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(total))));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i].load(std::memory_order_relaxed);
    if (seen >= wanted) return std::min(upper_end(i), max());
  }
  return max();
}

}  // namespace colibri
