// The rule of int4 quantisation. Sums are in double precision and in ascending order: squares of
// any float fit, and the result depends on nothing else.
#include "kernels/int4_group.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/number_format.hpp"

namespace colibri::kernels {
namespace {

constexpr double kSteps[] = {6.5, 7.0, 7.5, 8.0, 8.5};  // how many steps the largest value may be

// To the nearest step, ties to even. Adding 1.5 * 2^52 leaves no bits after the point; no library call.
double step_of(double value) noexcept {
  constexpr double kNoFraction = 0x1.8p52;
  return std::clamp(value, -8.0, 7.0) + kNoFraction - kNoFraction;
}

// Both sums over one guess of the scale.
struct Fit {
  double value_steps = 0;    // sum(v q)
  double steps_squared = 0;  // sum(q^2), never 0: the largest value has at least 6 steps
};

Fit fit(const float* values, std::uint32_t count, double inverse) noexcept {
  Fit sums;
  for (std::uint32_t i = 0; i < count; ++i) {
    const double step = step_of(values[i] * inverse);
    sums.value_steps += values[i] * step;
    sums.steps_squared += step * step;
  }
  return sums;
}

}  // namespace

std::uint16_t quantize_int4_group(const float* values, std::uint32_t count, std::int8_t* quantized) noexcept {
  std::fill_n(quantized, count, std::int8_t{0});
  float largest = 0;  // with its sign
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return f32_to_bf16(std::numeric_limits<float>::quiet_NaN());
    if (std::abs(values[i]) > std::abs(largest)) largest = values[i];
  }
  if (largest == 0.0F) return 0;
  double best_scale = 0;
  double best_gain = -1;
  for (const double steps : kSteps) {
    const Fit sums = fit(values, count, -steps / largest);
    const double scale = sums.value_steps / sums.steps_squared;
    const double gain = sums.value_steps * scale;
    if (gain <= best_gain) continue;
    best_gain = gain;
    best_scale = scale;
  }
  const std::uint16_t scale = f32_to_bf16(static_cast<float>(best_scale));
  const double exact = bf16_to_f32(scale);
  if (exact == 0.0) return 0;  // of either sign
  for (std::uint32_t i = 0; i < count; ++i) {
    quantized[i] = static_cast<std::int8_t>(step_of(values[i] / exact));
  }
  return scale;
}

}  // namespace colibri::kernels
