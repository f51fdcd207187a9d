// AVX-512 int4 matrix product with vpdpbusd.
//
// A load of 64 bytes holds two vectors of quads, one in the low and one in the high halves of
// its bytes. They are w + 8 and so the unsigned operand; the sums start at
// -8 * sum(activations), which the quantisation has stored for each 32 of them.
#include <immintrin.h>

#include <cstring>

#include "kernels/avx512/avx512_kernels.hpp"
#include "kernels/avx512/lanes.hpp"
#include "kernels/vector/row_tiles.hpp"

namespace colibri::kernels::avx512 {
namespace {

constexpr std::uint32_t kVectorBytes = 64;
constexpr std::uint32_t kVectors = kInt4GroupBytes / kVectorBytes;  // of a group, two quads each

struct Int4Tile {
  static constexpr int kRows = 6;
  static constexpr int kAccumulators = 12;
  static constexpr int kMaxPanels = 2;
  static constexpr int kStreamAccumulators = 1;

  template <int kTileRows, int kPanels>
  static void tile(const MatmulArgs& args, std::uint64_t panel_bytes, std::uint32_t row, std::uint32_t panel,
                   const WeightsAhead& ahead) {
    const std::size_t pairs = panel_bytes / kInt4PairBytes;
    std::size_t first_pair[kTileRows];  // of each source row
    for (int r = 0; r < kTileRows; ++r) {
      first_pair[r] = source_row(args, row + static_cast<std::uint32_t>(r)) * pairs;
    }
    const std::byte* weights = args.weights.data + panel * panel_bytes;
    const QuantizedRows& x = args.x_quantized;

    Lanes sums[kTileRows][kPanels];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) sums[r][p] = Lanes::zero();
    }
    WeightFetcher<kPanels, kInt4PairBytes> fetcher(ahead);
    for (std::size_t g = 0; g < pairs; ++g, weights += kInt4PairBytes) {
      fetcher.step(weights, panel_bytes);
      Lanes both[kTileRows][kPanels];  // scaled dot products of the two groups
#pragma GCC unroll 2
      for (std::uint32_t half = 0; half < 2; ++half) {
        __m512i dots[kTileRows][kPanels];
        group_dots<kTileRows, kPanels>(weights + half * kInt4GroupBytes, panel_bytes, x, first_pair, g, half,
                                       dots);
#pragma GCC unroll 16
        for (int p = 0; p < kPanels; ++p) {
          const Lanes scales = Lanes::load(reinterpret_cast<const std::uint16_t*>(
              weights + p * panel_bytes + 2 * kInt4GroupBytes + half * (kPanelOutputs * 2)));
#pragma GCC unroll 16
          for (int r = 0; r < kTileRows; ++r) {
            const Lanes dot = {_mm512_cvtepi32_ps(dots[r][p])};
            if (half == 0) {
              both[r][p] = Lanes::mul(dot, scales);
            } else {
              both[r][p] = Lanes::fma(dot, scales, both[r][p]);
              sums[r][p] = Lanes::fma(both[r][p], Lanes::all(x.scales[first_pair[r] + g]), sums[r][p]);
            }
          }
        }
      }
    }
    store_tile(args, row, panel, sums);
  }

 private:
  // dots[r][p] = exact signed dot products of row r with a group of 32 inputs of panel p.
  template <int kTileRows, int kPanels>
  [[gnu::always_inline]] static void group_dots(const std::byte* weights, std::uint64_t panel_bytes,
                                                const QuantizedRows& x,
                                                const std::size_t (&first_pair)[kTileRows], std::size_t g,
                                                std::uint32_t half, __m512i (&dots)[kTileRows][kPanels]) {
    const std::int8_t* values[kTileRows];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      values[r] = x.values + (first_pair[r] + g) * kInt8Group + half * kInt4Group;
      const __m512i offset = _mm512_set1_epi32(x.half_offsets[2 * (first_pair[r] + g) + half]);
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) dots[r][p] = offset;
    }
    const __m512i mask = _mm512_set1_epi8(0xf);
#pragma GCC unroll 16
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      __m512i low[kPanels], high[kPanels];
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) {
        const __m512i packed = _mm512_loadu_si512(weights + p * panel_bytes + v * kVectorBytes);
        low[p] = _mm512_and_si512(packed, mask);
        high[p] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), mask);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        const __m512i value = quad(values[r] + v * 4);
#pragma GCC unroll 16
        for (int p = 0; p < kPanels; ++p) dots[r][p] = _mm512_dpbusd_epi32(dots[r][p], low[p], value);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        const __m512i value = quad(values[r] + kInt4Group / 2 + v * 4);
#pragma GCC unroll 16
        for (int p = 0; p < kPanels; ++p) dots[r][p] = _mm512_dpbusd_epi32(dots[r][p], high[p], value);
      }
    }
  }

  // Four activations for every output.
  [[gnu::always_inline]] static __m512i quad(const std::int8_t* values) {
    std::int32_t bits;
    std::memcpy(&bits, values, sizeof(bits));
    return _mm512_set1_epi32(bits);
  }
};

}  // namespace

void matmul_int4(const MatmulArgs& args) noexcept { RowTiles<Int4Tile>::run(args); }

}  // namespace colibri::kernels::avx512
