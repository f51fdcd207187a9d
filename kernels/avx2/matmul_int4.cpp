// AVX2 int4 matrix product.
//
// Unsigned halves of bytes times int8 leave vpmaddubsw far from saturation: a pair of products is
// at most 2 * 15 * 127 = 3810 in magnitude, and the eight pairs of a group of 32 inputs together
// 30480, so a group is summed in 16 bit and widened once. Packed weights are w + 8; the exact sum
// is corrected by -8 * sum(activations), which the quantisation has stored for each 32 of them.
#include <immintrin.h>

#include <cstring>

#include "kernels/avx2/avx2_kernels.hpp"
#include "kernels/avx2/lanes.hpp"
#include "kernels/vector/row_tiles.hpp"

namespace colibri::kernels::avx2 {
namespace {

constexpr std::uint32_t kVectorBytes = 64;
constexpr std::uint32_t kVectors = kInt4GroupBytes / kVectorBytes;  // of a group, two quads each

struct Int4Tile {
  static constexpr int kRows = 6;
  static constexpr int kAccumulators = 6;
  static constexpr int kMaxPanels = 1;
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
    for (int r = 0; r < kTileRows; ++r) sums[r][0] = Lanes::zero();

    WeightFetcher<kPanels, kInt4PairBytes> fetcher(ahead);
    for (std::size_t g = 0; g < pairs; ++g, weights += kInt4PairBytes) {
      fetcher.step(weights, panel_bytes);
      // In one place: there are not enough registers to point to each row.
      alignas(32) std::int8_t values[kTileRows][kInt8Group];
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        std::memcpy(values[r], x.values + (first_pair[r] + g) * kInt8Group, kInt8Group);
      }
      Lanes both[kTileRows];  // scaled dot products of the two groups
#pragma GCC unroll 2
      for (std::uint32_t half = 0; half < 2; ++half) {
        Outputs dots[kTileRows];
        group_dots(weights + half * kInt4GroupBytes, values, half * kInt4Group, dots);
        const Lanes scales = Lanes::load(reinterpret_cast<const std::uint16_t*>(
            weights + 2 * kInt4GroupBytes + half * (kPanelOutputs * 2)));
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) {
          const std::size_t at = first_pair[r] + g;
          const __m256i offset = _mm256_set1_epi32(x.half_offsets[2 * at + half]);
          const Lanes exact = {_mm256_cvtepi32_ps(_mm256_add_epi32(dots[r].low, offset)),
                               _mm256_cvtepi32_ps(_mm256_add_epi32(dots[r].high, offset))};
          if (half == 0) {
            both[r] = Lanes::mul(exact, scales);
          } else {
            both[r] = Lanes::fma(exact, scales, both[r]);
            sums[r][0] = Lanes::fma(both[r], Lanes::all(x.scales[at]), sums[r][0]);
          }
        }
      }
    }
    store_tile(args, row, panel, sums);
  }

 private:
  // Integers of the sixteen outputs of a panel.
  struct Outputs {
    __m256i low, high;
  };

  // dots[r] = the dot products of row r with the unsigned weights of one group.
  template <int kTileRows>
  [[gnu::always_inline]] static void group_dots(const std::byte* weights,
                                                const std::int8_t (&values)[kTileRows][kInt8Group],
                                                std::uint32_t first, Outputs (&dots)[kTileRows]) {
    const __m256i mask = _mm256_set1_epi8(0xf);
    Outputs pairs[kTileRows];  // sums of pairs of products, 16 bit
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) pairs[r] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 4
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      const __m256i* vectors = reinterpret_cast<const __m256i*>(weights + v * kVectorBytes);
      const Outputs packed = {_mm256_loadu_si256(vectors), _mm256_loadu_si256(vectors + 1)};
      add_products({_mm256_and_si256(packed.low, mask), _mm256_and_si256(packed.high, mask)}, values,
                   first + v * 4, pairs);
      add_products({_mm256_and_si256(_mm256_srli_epi16(packed.low, 4), mask),
                    _mm256_and_si256(_mm256_srli_epi16(packed.high, 4), mask)},
                   values, first + kInt4Group / 2 + v * 4, pairs);
    }
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      dots[r] = {_mm256_madd_epi16(pairs[r].low, ones), _mm256_madd_epi16(pairs[r].high, ones)};
    }
  }

  // Adds one quad of weights of every output times each row's four activations at `input`.
  template <int kTileRows>
  [[gnu::always_inline]] static void add_products(Outputs weights,
                                                  const std::int8_t (&values)[kTileRows][kInt8Group],
                                                  std::uint32_t input, Outputs (&pairs)[kTileRows]) {
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      const __m256i value = quad(values[r] + input);
      add(pairs[r].low, _mm256_maddubs_epi16(weights.low, value));
      add(pairs[r].high, _mm256_maddubs_epi16(weights.high, value));
    }
  }
  // GCC would make the products of all rows first, and keep them in memory: it cannot move this.
  [[gnu::always_inline]] static void add(__m256i& sum, __m256i products) {
    asm volatile("vpaddw %1, %0, %0" : "+x"(sum) : "x"(products));
  }

  // Four activations for every output.
  [[gnu::always_inline]] static __m256i quad(const std::int8_t* values) {
    std::int32_t bits;
    std::memcpy(&bits, values, sizeof(bits));
    return _mm256_set1_epi32(bits);
  }
};

}  // namespace

void matmul_int4(const MatmulArgs& args) noexcept { RowTiles<Int4Tile>::run(args); }

}  // namespace colibri::kernels::avx2
