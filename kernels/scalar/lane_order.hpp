// The scalar exponential and the lane-order sum, as the rest of the reference uses them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/exp_constants.hpp"

namespace colibri::kernels::scalar {

inline constexpr std::size_t kLanes = 16;

// See exp_constants.hpp.
inline float exp_value(float x) noexcept {
  if (std::isnan(x)) return x;
  if (x < kExpLow) return 0.0F;
  if (x > kExpHigh) return std::numeric_limits<float>::infinity();
  const float t = std::fma(x, kLog2E, kExpMagic);
  const float n = t - kExpMagic;
  const float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
  float p = kExp5;
  p = std::fma(p, r, kExp4);
  p = std::fma(p, r, kExp3);
  p = std::fma(p, r, kExp2);
  p = std::fma(p, r, kExp1);
  p = std::fma(p, r, kExp0);
  const float y = std::fma(r * r, p, r) + 1.0F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(y) + (std::bit_cast<std::uint32_t>(t) << 23));
}

// accumulators [16], added in ascending order.
inline float sum_lanes(const float* accumulators) noexcept {
  float sum = accumulators[0];
  for (std::size_t lane = 1; lane < kLanes; ++lane) sum += accumulators[lane];
  return sum;
}

}  // namespace colibri::kernels::scalar
