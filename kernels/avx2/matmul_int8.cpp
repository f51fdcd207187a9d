// AVX2 int8 matrix product.
//
// vpmaddubsw would saturate (2 * 255 * 127 > 32767), so both sides are widened to 16 bit
// for vpmaddwd, which is exact. Packed weights are w + 128; the exact sum is corrected by
// -128 * sum(activations), which the quantisation has stored per group.
#include <immintrin.h>

#include <cstring>

#include "kernels/avx2/avx2_kernels.hpp"
#include "kernels/avx2/lanes.hpp"
#include "kernels/vector/row_tiles.hpp"

namespace colibri::kernels::avx2 {
namespace {

constexpr std::uint32_t kQuads = kInt8Group / 4;  // of a group
constexpr std::uint32_t kQuadBytes = kPanelOutputs * 4;
constexpr std::uint32_t kHalfQuadBytes = kQuadBytes / 2;  // eight outputs

struct Int8Tile {
  static constexpr int kRows = 3;
  static constexpr int kAccumulators = 3;
  static constexpr int kMaxPanels = 1;
  static constexpr int kSingleRowPanels = kMaxPanels;

  // kTileRows rows by one panel, half a panel (eight outputs) at a time: two registers of pairs a row.
  template <int kTileRows, int kPanels>
  static void tile(const MatmulArgs& args, std::uint64_t panel_bytes, std::uint32_t row,
                   std::uint32_t panel) {
    const std::size_t groups = panel_bytes / kInt8GroupBytes;
    std::size_t first_group[kTileRows];  // of each source row
    for (int r = 0; r < kTileRows; ++r) {
      first_group[r] = source_row(args, row + static_cast<std::uint32_t>(r)) * groups;
    }
    const std::byte* weights = args.weights.data + panel * panel_bytes;
    Lanes sums[kTileRows][kPanels];
    for (int r = 0; r < kTileRows; ++r) sums[r][0] = Lanes::zero();

    for (std::size_t g = 0; g < groups; ++g, weights += kInt8GroupBytes) {
      alignas(32) std::int16_t values[kTileRows][kInt8Group];
      for (int r = 0; r < kTileRows; ++r) {
        widen(args.x_quantized.values + (first_group[r] + g) * kInt8Group, values[r]);
      }
      const float* scales = reinterpret_cast<const float*>(weights + kQuads * kQuadBytes);
      __m256i low[kTileRows], high[kTileRows];
      dot_half(weights, values, low);
      dot_half(weights + kHalfQuadBytes, values, high);
      for (int r = 0; r < kTileRows; ++r) {
        const __m256i offset = _mm256_set1_epi32(args.x_quantized.offsets[first_group[r] + g]);
        const __m256 scale = _mm256_set1_ps(args.x_quantized.scales[first_group[r] + g]);
        Lanes& sum = sums[r][0];
        sum.low =
            scaled(_mm256_add_epi32(low[r], offset), _mm256_mul_ps(scale, _mm256_loadu_ps(scales)), sum.low);
        sum.high = scaled(_mm256_add_epi32(high[r], offset),
                          _mm256_mul_ps(scale, _mm256_loadu_ps(scales + 8)), sum.high);
      }
    }
    store_tile(args, row, panel, sums);
  }

 private:
  [[gnu::always_inline]] static __m256 scaled(__m256i dots, __m256 scale, __m256 sum) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), scale, sum);
  }

  // One group of activations to 16 bit.
  [[gnu::always_inline]] static void widen(const std::int8_t* values, std::int16_t* out) {
    for (std::uint32_t k = 0; k < kInt8Group; k += 16) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values + k));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + k), _mm256_cvtepi8_epi16(bytes));
    }
  }

  // dots[r] = the eight dot products of row r with the unsigned weights of half a panel.
  template <int kTileRows>
  [[gnu::always_inline]] static void dot_half(const std::byte* weights,
                                              const std::int16_t (&values)[kTileRows][kInt8Group],
                                              __m256i (&dots)[kTileRows]) {
    __m256i first[kTileRows], second[kTileRows];  // pair sums of outputs 0..3 and 4..7
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) first[r] = second[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (std::uint32_t q = 0; q < kQuads; ++q) {
      const __m128i* bytes = reinterpret_cast<const __m128i*>(weights + q * kQuadBytes);
      const __m256i w0 = _mm256_cvtepu8_epi16(_mm_loadu_si128(bytes));
      const __m256i w1 = _mm256_cvtepu8_epi16(_mm_loadu_si128(bytes + 1));
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        long long quad;
        std::memcpy(&quad, values[r] + q * 4, sizeof(quad));
        const __m256i value = _mm256_set1_epi64x(quad);
        first[r] = _mm256_add_epi32(first[r], _mm256_madd_epi16(w0, value));
        second[r] = _mm256_add_epi32(second[r], _mm256_madd_epi16(w1, value));
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      // hadd leaves outputs 0 1 4 5 | 2 3 6 7.
      dots[r] = _mm256_permute4x64_epi64(_mm256_hadd_epi32(first[r], second[r]), 0b11011000);
    }
  }
};

}  // namespace

void matmul_int8(const MatmulArgs& args) noexcept { RowTiles<Int8Tile>::run(args); }

}  // namespace colibri::kernels::avx2
