// AVX-512 quantisation of activations for integer weights.
#include "kernels/vector/quantize_rows.hpp"

#include <immintrin.h>

#include <cstring>

#include "kernels/avx512/avx512_kernels.hpp"

namespace colibri::kernels::avx512 {
namespace {

struct Int8Group {
  static float quantize(const float* x, std::int8_t* values) {
    __m512 parts[4];
    __m512i largest = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      parts[i] = _mm512_loadu_ps(x + i * 16);
      const __m512i magnitude =
          _mm512_and_si512(_mm512_castps_si512(parts[i]), _mm512_set1_epi32(0x7fffffff));
      largest = _mm512_max_epi32(largest, magnitude);
    }
    const int bits = _mm512_reduce_max_epi32(largest);
    float magnitude;
    std::memcpy(&magnitude, &bits, sizeof(bits));
    const bool finite = bits < 0x7f800000;
    const float scale = finite ? magnitude / 127.0F : __builtin_nanf("");
    if (!finite || scale == 0.0F) {
      _mm512_storeu_si512(values, _mm512_setzero_si512());
      return scale;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      __m512 quotient = _mm512_div_ps(parts[i], _mm512_set1_ps(scale));
      quotient = _mm512_min_ps(_mm512_max_ps(quotient, _mm512_set1_ps(-127.0F)), _mm512_set1_ps(127.0F));
      const __m512i rounded =
          _mm512_cvt_roundps_epi32(quotient, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(values + i * 16), _mm512_cvtepi32_epi8(rounded));
    }
    return scale;
  }
};

}  // namespace

void quantize_rows(const float* x, std::size_t x_stride, std::uint32_t rows, std::uint32_t inputs,
                   const QuantizedRows& out, std::uint32_t out_row) noexcept {
  quantize_groups<Int8Group>(x, x_stride, rows, inputs, out, out_row);
}

}  // namespace colibri::kernels::avx512
