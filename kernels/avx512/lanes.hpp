// Sixteen floats in one register: what the bodies in kernels/vector/ are written in.
// Everything is in an anonymous namespace and always inlined, so that no copy compiled for
// AVX-512 can be linked into generic code.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace colibri::kernels {
namespace {

struct Lanes {
  __m512 v;

  // Shapes of register tiles, see vector/row_tiles.hpp and vector/attention.hpp.
  static constexpr int kTileRows = 12;
  static constexpr int kTileAccumulators = 24;
  static constexpr int kTilePanels = 4;
  static constexpr int kStreamAccumulators = 8;  // enough to hide the latency of an fma
  static constexpr int kAttentionQueries = 6;
  static constexpr int kAttentionVectors = 8;

  using Mask = __mmask16;
  [[gnu::always_inline]] static Mask mask(std::uint32_t bits) { return static_cast<Mask>(bits); }

  [[gnu::always_inline]] static Lanes zero() { return {_mm512_setzero_ps()}; }
  [[gnu::always_inline]] static Lanes all(float value) { return {_mm512_set1_ps(value)}; }
  [[gnu::always_inline]] static Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
  [[gnu::always_inline]] static Lanes load(const std::uint16_t* p) {
    return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  // Sixteen weights in the order that is cheapest, and results of that order put right: here as they are.
  template <class Weight>
  [[gnu::always_inline]] static Lanes load_apart(const Weight* p) {
    return load(p);
  }
  template <class Weight>
  [[gnu::always_inline]] static Lanes together(Lanes apart) {
    return apart;
  }
  // The first n < 16 elements, zeros after; nothing beyond them is touched.
  [[gnu::always_inline]] static Lanes load_first(const float* p, std::uint32_t n) {
    return {_mm512_maskz_loadu_ps(first(n), p)};
  }
  [[gnu::always_inline]] static Lanes load_first(const std::uint16_t* p, std::uint32_t n) {
    return widened(_mm256_maskz_loadu_epi16(first(n), p));
  }
  [[gnu::always_inline]] void store(float* p) const { _mm512_storeu_ps(p, v); }
  [[gnu::always_inline]] void store_first(float* p, std::uint32_t n) const {
    _mm512_mask_storeu_ps(p, first(n), v);
  }

  [[gnu::always_inline]] static Lanes add(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static Lanes sub(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static Lanes mul(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
  [[gnu::always_inline]] static Lanes div(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
  // a * b + c and a * b - c, rounded once.
  [[gnu::always_inline]] static Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm512_fmadd_ps(a.v, b.v, c.v)};
  }
  [[gnu::always_inline]] static Lanes fms(Lanes a, Lanes b, Lanes c) {
    return {_mm512_fmsub_ps(a.v, b.v, c.v)};
  }
  // a > b ? a : b, so b where either is NaN.
  [[gnu::always_inline]] static Lanes larger(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }

  // Of lanes that are not NaN; the sign of a zero is not fixed.
  [[gnu::always_inline]] static float largest(Lanes a) { return _mm512_reduce_max_ps(a.v); }

  [[gnu::always_inline]] static Lanes select(Mask mask, Lanes yes, Lanes no) {
    return {_mm512_mask_blend_ps(mask, no.v, yes.v)};
  }
  [[gnu::always_inline]] static Mask less(Lanes a, Lanes b) {
    return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ);
  }
  [[gnu::always_inline]] static Mask is_nan(Lanes a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
  [[gnu::always_inline]] static bool any(Mask mask) { return mask != 0; }

  // y with the low bits of t added to its exponent field.
  [[gnu::always_inline]] static Lanes add_exponent(Lanes y, Lanes t) {
    const __m512i shift = _mm512_slli_epi32(_mm512_castps_si512(t.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y.v), shift))};
  }

 private:
  [[gnu::always_inline]] static __mmask16 first(std::uint32_t n) {
    return static_cast<__mmask16>((1U << n) - 1U);
  }
  [[gnu::always_inline]] static Lanes widened(__m256i bf16) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16))};
  }
};

}  // namespace
}  // namespace colibri::kernels
