// The rule of int4 quantisation. Sums are in double precision and in ascending order: squares of
// any float fit, and the result depends on nothing else. So several guesses go side by side, two to
// a register, but never parts of one sum.
#include "kernels/int4_group.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/number_format.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace colibri::kernels {
namespace {

// Two guesses of the scale, or two values.
using Pair [[gnu::vector_size(16)]] = double;

constexpr int kPairs = 3;
// How many steps the largest value may be. The last one is there twice: it fills up the pair.
constexpr Pair kSteps[kPairs] = {{6.5, 7.0}, {7.5, 8.0}, {8.5, 8.5}};

Pair clamped(Pair value) noexcept {
  const Pair least = Pair{} - 8.0, most = Pair{} + 7.0;
#if defined(__SSE2__)
  return _mm_min_pd(_mm_max_pd(value, least), most);  // the compiler does not see it in what follows
#else
  value = least < value ? value : least;
  return value < most ? value : most;
#endif
}

// To the nearest step, ties to even. Adding 1.5 * 2^52 leaves no bits after the point; no library call.
Pair step_of(Pair value) noexcept {
  constexpr double kNoFraction = 0x1.8p52;
  return clamped(value) + kNoFraction - kNoFraction;
}

// Both sums over each guess.
struct Fits {
  Pair value_steps[kPairs] = {};    // sum(v q)
  Pair steps_squared[kPairs] = {};  // sum(q^2), never 0: the largest value has at least 6 steps
};

Fits fit(const float* values, std::uint32_t count, const Pair (&inverses)[kPairs]) noexcept {
  Fits sums;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Pair value = Pair{} + double{values[i]};
#pragma GCC unroll 3
    for (int pair = 0; pair < kPairs; ++pair) {
      const Pair step = step_of(value * inverses[pair]);
      sums.value_steps[pair] += value * step;
      sums.steps_squared[pair] += step * step;
    }
  }
  return sums;
}

}  // namespace

std::uint16_t quantize_int4_group(const float* values, std::uint32_t count, std::int8_t* quantized) noexcept {
  std::fill_n(quantized, count, std::int8_t{0});
  std::int32_t magnitude = 0;  // as bits: those of NaN and infinity are above all others
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff;
    magnitude = magnitude < bits ? bits : magnitude;
  }
  constexpr std::int32_t kInfinity = 0x7f800000;
  if (magnitude >= kInfinity) return f32_to_bf16(std::numeric_limits<float>::quiet_NaN());
  if (magnitude == 0) return 0;
  std::uint32_t first = 0;
  while ((std::bit_cast<std::int32_t>(values[first]) & 0x7fffffff) != magnitude) ++first;
  const double largest = values[first];  // with its sign
  Pair inverses[kPairs];
  for (int pair = 0; pair < kPairs; ++pair) inverses[pair] = -kSteps[pair] / largest;
  const Fits sums = fit(values, count, inverses);
  double best_scale = 0;
  double best_gain = -1;
  for (int guess = 0; guess < 2 * kPairs; ++guess) {
    const double value_steps = sums.value_steps[guess / 2][guess % 2];
    const double scale = value_steps / sums.steps_squared[guess / 2][guess % 2];
    const double gain = value_steps * scale;
    if (gain <= best_gain) continue;
    best_gain = gain;
    best_scale = scale;
  }
  const std::uint16_t scale = f32_to_bf16(static_cast<float>(best_scale));
  const double exact = bf16_to_f32(scale);
  if (exact == 0.0) return 0;  // of either sign
  for (std::uint32_t i = 0; i < count; i += 2) {
    const Pair pair = {values[i], i + 1 < count ? values[i + 1] : 0.0};
    const Pair steps = step_of(pair / exact);
    quantized[i] = static_cast<std::int8_t>(steps[0]);
    if (i + 1 < count) quantized[i + 1] = static_cast<std::int8_t>(steps[1]);
  }
  return scale;
}

}  // namespace colibri::kernels
