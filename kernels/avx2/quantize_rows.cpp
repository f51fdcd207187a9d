// AVX2 quantisation of activations for integer weights.
#include "kernels/vector/quantize_rows.hpp"

#include <immintrin.h>

#include <cstring>

#include "kernels/avx2/avx2_kernels.hpp"

namespace colibri::kernels::avx2 {
namespace {

struct Int8Group {
  static float quantize(const float* x, std::int8_t* values) {
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < 8; ++i) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i * 8));
      largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    int lanes[8];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), largest);
    int bits = 0;
    for (const int lane : lanes) bits = lane > bits ? lane : bits;
    float magnitude;
    std::memcpy(&magnitude, &bits, sizeof(bits));
    const bool finite = bits < 0x7f800000;
    const float scale = finite ? magnitude / 127.0F : __builtin_nanf("");
    if (!finite || scale == 0.0F) {
      std::memset(values, 0, kInt8Group);
      return scale;
    }
    for (int i = 0; i < 8; ++i) {
      __m256 quotient = _mm256_div_ps(_mm256_loadu_ps(x + i * 8), _mm256_set1_ps(scale));
      quotient = _mm256_min_ps(_mm256_max_ps(quotient, _mm256_set1_ps(-127.0F)), _mm256_set1_ps(127.0F));
      const __m256i rounded =
          _mm256_cvtps_epi32(_mm256_round_ps(quotient, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
      const __m128i words =
          _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(values + i * 8), _mm_packs_epi16(words, words));
    }
    return scale;
  }
};

}  // namespace

void quantize_rows(const float* x, std::size_t x_stride, std::uint32_t rows, std::uint32_t inputs,
                   const QuantizedRows& out, std::uint32_t out_row) noexcept {
  quantize_groups<Int8Group>(x, x_stride, rows, inputs, out, out_row);
}

}  // namespace colibri::kernels::avx2
