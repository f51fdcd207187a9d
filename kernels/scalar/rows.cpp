// Reference kernels over one row: norm, activation, rotation, sums.
#include <cmath>
#include <limits>

#include "kernels/scalar/lane_order.hpp"
#include "kernels/scalar/scalar_kernels.hpp"

namespace colibri::kernels::scalar {

float exp(float x) noexcept { return exp_value(x); }

float dot(const float* x, const float* y, std::size_t n) noexcept {
  float sums[kLanes] = {};
  for (std::size_t i = 0; i < n; ++i) sums[i % kLanes] = std::fma(x[i], y[i], sums[i % kLanes]);
  return sum_lanes(sums);
}

void rms_norm(const float* x, const float* weight, float eps, std::uint32_t n, float* y) noexcept {
  const float mean = dot(x, x, n) / static_cast<float>(n);
  const float inverse = 1.0F / std::sqrt(mean + eps);
  for (std::uint32_t i = 0; i < n; ++i) y[i] = x[i] * inverse * weight[i];
}

void silu_multiply(const float* gate, const float* up, std::size_t n, float* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0F + exp_value(-gate[i])) * up[i];
}

void rope(float* head, const float* cosines, const float* sines, std::uint32_t half,
          RopePairing pairing) noexcept {
  const std::size_t step = pairing == RopePairing::halves ? 1 : 2;
  const std::size_t distance = pairing == RopePairing::halves ? half : 1;
  for (std::uint32_t i = 0; i < half; ++i) {
    float& first = head[i * step];
    float& second = head[i * step + distance];
    const float a = first;
    const float b = second;
    first = std::fma(a, cosines[i], -(b * sines[i]));
    second = std::fma(b, cosines[i], a * sines[i]);
  }
}

void scale_add(float weight, const float* x, std::size_t n, float* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] = std::fma(weight, x[i], out[i]);
}

void add(const float* x, std::size_t n, float* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] += x[i];
}

float max_value(const float* x, std::size_t n) noexcept {
  // Per lane as the vector variants do it, so that the sign of a zero agrees too.
  float largest[kLanes];
  for (float& value : largest) value = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) return std::numeric_limits<float>::quiet_NaN();
    if (x[i] > largest[i % kLanes]) largest[i % kLanes] = x[i];
  }
  float result = largest[0];
  for (const float value : largest) {
    if (value > result) result = value;
  }
  return result;
}

float sum_exp(const float* x, float max, std::size_t n) noexcept {
  float sums[kLanes] = {};
  for (std::size_t i = 0; i < n; ++i) sums[i % kLanes] += exp_value(x[i] - max);
  return sum_lanes(sums);
}

void exp_shifted(const float* x, float max, std::size_t n, float* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] = exp_value(x[i] - max);
}

}  // namespace colibri::kernels::scalar
