// AVX-512 int8 matrix product with vpdpbusd.
//
// Packed weights are w + 128 and so the unsigned operand; the sums start at
// -128 * sum(activations), which the quantisation has stored per group, so they end at the
// exact signed dot product.
#include <immintrin.h>

#include <cstring>

#include "kernels/avx512/avx512_kernels.hpp"
#include "kernels/avx512/lanes.hpp"
#include "kernels/vector/row_tiles.hpp"

namespace colibri::kernels::avx512 {
namespace {

constexpr std::uint32_t kQuads = kInt8Group / 4;  // of a group
constexpr std::uint32_t kQuadBytes = kPanelOutputs * 4;

struct Int8Tile {
  static constexpr int kRows = 8;
  static constexpr int kAccumulators = 16;
  static constexpr int kMaxPanels = 2;
  static constexpr int kStreamAccumulators = 1;

  template <int kTileRows, int kPanels>
  static void tile(const MatmulArgs& args, std::uint64_t panel_bytes, std::uint32_t row, std::uint32_t panel,
                   const WeightsAhead& ahead) {
    const std::size_t groups = panel_bytes / kInt8GroupBytes;
    std::size_t first_group[kTileRows];  // of each source row
    for (int r = 0; r < kTileRows; ++r) {
      first_group[r] = source_row(args, row + static_cast<std::uint32_t>(r)) * groups;
    }
    const std::byte* weights = args.weights.data + panel * panel_bytes;
    const QuantizedRows& x = args.x_quantized;

    Lanes sums[kTileRows][kPanels];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) sums[r][p] = Lanes::zero();
    }
    WeightFetcher<kPanels, kInt8GroupBytes> fetcher(ahead);
    for (std::size_t g = 0; g < groups; ++g, weights += kInt8GroupBytes) {
      fetcher.step(weights, panel_bytes);
      const std::int8_t* values[kTileRows];
      __m512i dots[kTileRows][kPanels];
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        values[r] = x.values + (first_group[r] + g) * kInt8Group;
        const __m512i offset = _mm512_set1_epi32(x.offsets[first_group[r] + g]);
#pragma GCC unroll 16
        for (int p = 0; p < kPanels; ++p) dots[r][p] = offset;
      }
#pragma GCC unroll 16
      for (std::uint32_t q = 0; q < kQuads; ++q) {
        __m512i w[kPanels];
#pragma GCC unroll 16
        for (int p = 0; p < kPanels; ++p)
          w[p] = _mm512_loadu_si512(weights + p * panel_bytes + q * kQuadBytes);
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) {
          std::int32_t quad;
          std::memcpy(&quad, values[r] + q * 4, sizeof(quad));
          const __m512i value = _mm512_set1_epi32(quad);
#pragma GCC unroll 16
          for (int p = 0; p < kPanels; ++p) dots[r][p] = _mm512_dpbusd_epi32(dots[r][p], w[p], value);
        }
      }
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) {
        const __m512 scales = _mm512_loadu_ps(weights + p * panel_bytes + kQuads * kQuadBytes);
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) {
          const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x.scales[first_group[r] + g]), scales);
          sums[r][p].v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r][p]), scale, sums[r][p].v);
        }
      }
    }
    store_tile(args, row, panel, sums);
  }
};

}  // namespace

void matmul_int8(const MatmulArgs& args) noexcept { RowTiles<Int8Tile>::run(args); }

}  // namespace colibri::kernels::avx512
