// AVX2 kernels over one row.
#include "kernels/vector/rows.hpp"

#include "kernels/avx2/avx2_kernels.hpp"
#include "kernels/avx2/lanes.hpp"

namespace colibri::kernels::avx2 {

using Rows = RowKernels<Lanes>;

void rms_norm(const float* x, const float* weight, float eps, std::uint32_t n, float* y) noexcept {
  Rows::rms_norm(x, weight, eps, n, y);
}

void silu_multiply(const float* gate, const float* up, std::size_t n, float* out) noexcept {
  Rows::silu_multiply(gate, up, n, out);
}

void rope(float* head, const float* cosines, const float* sines, std::uint32_t half,
          RopePairing pairing) noexcept {
  Rows::rope(head, cosines, sines, half, pairing);
}

void scale_add(float weight, const float* x, std::size_t n, float* out) noexcept {
  Rows::scale_add(weight, x, n, out);
}

void add(const float* x, std::size_t n, float* out) noexcept { Rows::add(x, n, out); }

float dot(const float* x, const float* y, std::size_t n) noexcept { return Rows::dot(x, y, n); }

float max_value(const float* x, std::size_t n) noexcept { return Rows::max_value(x, n); }

float sum_exp(const float* x, float max, std::size_t n) noexcept { return Rows::sum_exp(x, max, n); }

void exp_shifted(const float* x, float max, std::size_t n, float* out) noexcept {
  Rows::exp_shifted(x, max, n, out);
}

float exp(float x) noexcept { return Rows::exp(x); }

}  // namespace colibri::kernels::avx2
