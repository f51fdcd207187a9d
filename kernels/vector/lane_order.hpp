// The vector form of the exponential and of the lane-order sum. The bodies in this folder
// are templates over Lanes (sixteen floats) of an instruction set; each is compiled once
// per set, inside that set's files, with internal linkage.
#pragma once

#include <cstdint>

#include "kernels/exp_constants.hpp"

namespace colibri::kernels {
namespace {

constexpr std::uint32_t kLanes = 16;

// See exp_constants.hpp. Lanes outside the bounds compute something meaningless, without trapping, and
// are replaced at the end.
template <class L>
[[gnu::always_inline]] inline L exp_lanes(L x) {
  const L t = L::fma(x, L::all(kLog2E), L::all(kExpMagic));
  const L n = L::sub(t, L::all(kExpMagic));
  const L r = L::fma(n, L::all(-kLn2Low), L::fma(n, L::all(-kLn2High), x));
  L p = L::all(kExp5);
  p = L::fma(p, r, L::all(kExp4));
  p = L::fma(p, r, L::all(kExp3));
  p = L::fma(p, r, L::all(kExp2));
  p = L::fma(p, r, L::all(kExp1));
  p = L::fma(p, r, L::all(kExp0));
  L y = L::add(L::fma(L::mul(r, r), p, r), L::all(1.0F));
  y = L::add_exponent(y, t);
  y = L::select(L::less(x, L::all(kExpLow)), L::zero(), y);
  y = L::select(L::less(L::all(kExpHigh), x), L::all(__builtin_inff()), y);
  return L::select(L::is_nan(x), x, y);
}

// The lanes added in ascending order.
template <class L>
inline float sum_lanes(L lanes) {
  alignas(64) float values[kLanes];
  lanes.store(values);
  float sum = values[0];
  for (std::uint32_t i = 1; i < kLanes; ++i) sum += values[i];
  return sum;
}

// The largest lane; no lane is NaN.
template <class L>
inline float largest_lane(L lanes) {
  alignas(64) float values[kLanes];
  lanes.store(values);
  float largest = values[0];
  for (std::uint32_t i = 1; i < kLanes; ++i) largest = values[i] > largest ? values[i] : largest;
  return largest;
}

}  // namespace
}  // namespace colibri::kernels
