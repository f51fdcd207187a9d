// Sixteen floats in two registers: what the bodies in kernels/vector/ are written in.
// Everything is in an anonymous namespace and always inlined, so that no copy compiled for
// AVX2 can be linked into generic code.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace colibri::kernels {
namespace {

struct Lanes {
  __m256 low, high;

  // Shapes of register tiles, see vector/row_tiles.hpp and vector/attention.hpp.
  static constexpr int kTileRows = 6;
  static constexpr int kTileAccumulators = 6;
  static constexpr int kTilePanels = 2;
  static constexpr int kStreamAccumulators = 4;  // enough to hide the latency of an fma
  static constexpr int kAttentionQueries = 6;
  static constexpr int kAttentionVectors = 4;

  struct Mask {
    __m256 low, high;  // all bits of a lane are set, or none
  };
  [[gnu::always_inline]] static Mask mask(std::uint32_t bits) {
    const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i high = _mm256_slli_epi32(low, 8);
    const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
    return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, low), low)),
            _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, high), high))};
  }

  [[gnu::always_inline]] static Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  [[gnu::always_inline]] static Lanes all(float value) {
    return {_mm256_set1_ps(value), _mm256_set1_ps(value)};
  }
  [[gnu::always_inline]] static Lanes load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
  }
  [[gnu::always_inline]] static Lanes load(const std::uint16_t* p) { return {widened(p), widened(p + 8)}; }
  // Sixteen weights in the order that is cheapest, and results of that order put right.
  [[gnu::always_inline]] static Lanes load_apart(const float* p) { return load(p); }
  [[gnu::always_inline]] static Lanes load_apart(const std::uint16_t* p) {  // even ones, odd ones
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000U))))};
  }
  template <class Weight>
  [[gnu::always_inline]] static Lanes together(Lanes apart) {
    if constexpr (sizeof(Weight) == sizeof(float)) return apart;
    const __m256 first = _mm256_unpacklo_ps(apart.low, apart.high);   // 0 .. 3, 8 .. 11
    const __m256 second = _mm256_unpackhi_ps(apart.low, apart.high);  // 4 .. 7, 12 .. 15
    return {_mm256_permute2f128_ps(first, second, 0x20), _mm256_permute2f128_ps(first, second, 0x31)};
  }
  // The first n < 16 elements, zeros after; nothing beyond them is touched.
  [[gnu::always_inline]] static Lanes load_first(const float* p, std::uint32_t n) {
    const Mask mask = first(n);
    return {_mm256_maskload_ps(p, _mm256_castps_si256(mask.low)),
            _mm256_maskload_ps(p + 8, _mm256_castps_si256(mask.high))};
  }
  [[gnu::always_inline]] static Lanes load_first(const std::uint16_t* p, std::uint32_t n) {
    std::uint16_t copy[16] = {};
    for (std::uint32_t i = 0; i < n; ++i) copy[i] = p[i];
    return load(copy);
  }
  [[gnu::always_inline]] void store(float* p) const {
    _mm256_storeu_ps(p, low);
    _mm256_storeu_ps(p + 8, high);
  }
  [[gnu::always_inline]] void store_first(float* p, std::uint32_t n) const {
    const Mask mask = first(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(mask.low), low);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(mask.high), high);
  }

  [[gnu::always_inline]] static Lanes add(Lanes a, Lanes b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  [[gnu::always_inline]] static Lanes sub(Lanes a, Lanes b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }
  [[gnu::always_inline]] static Lanes mul(Lanes a, Lanes b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }
  [[gnu::always_inline]] static Lanes div(Lanes a, Lanes b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
  }
  // a * b + c and a * b - c, rounded once.
  [[gnu::always_inline]] static Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  [[gnu::always_inline]] static Lanes fms(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmsub_ps(a.low, b.low, c.low), _mm256_fmsub_ps(a.high, b.high, c.high)};
  }
  // a > b ? a : b, so b where either is NaN.
  [[gnu::always_inline]] static Lanes larger(Lanes a, Lanes b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }

  // Of lanes that are not NaN; the sign of a zero is not fixed.
  [[gnu::always_inline]] static float largest(Lanes a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
  }

  [[gnu::always_inline]] static Lanes select(Mask mask, Lanes yes, Lanes no) {
    return {_mm256_blendv_ps(no.low, yes.low, mask.low), _mm256_blendv_ps(no.high, yes.high, mask.high)};
  }
  [[gnu::always_inline]] static Mask less(Lanes a, Lanes b) {
    return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
  }
  [[gnu::always_inline]] static Mask is_nan(Lanes a) {
    return {_mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q), _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q)};
  }
  [[gnu::always_inline]] static bool any(Mask mask) {
    return _mm256_movemask_ps(_mm256_or_ps(mask.low, mask.high)) != 0;
  }

  // y with the low bits of t added to its exponent field.
  [[gnu::always_inline]] static Lanes add_exponent(Lanes y, Lanes t) {
    return {exponent_added(y.low, t.low), exponent_added(y.high, t.high)};
  }

 private:
  [[gnu::always_inline]] static Mask first(std::uint32_t n) { return mask((1U << n) - 1U); }
  [[gnu::always_inline]] static __m256 widened(const std::uint16_t* p) {
    const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  }
  [[gnu::always_inline]] static __m256 exponent_added(__m256 y, __m256 t) {
    const __m256i shift = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), shift));
  }
};

}  // namespace
}  // namespace colibri::kernels
