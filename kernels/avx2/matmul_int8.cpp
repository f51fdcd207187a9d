// AVX2 int8 matrix product.
//
// vpmaddubsw would saturate (2 * 255 * 127 > 32767), so both sides are widened to 16 bit
// for vpmaddwd, which is exact: even and odd inputs of a quad apart, so that both products
// of an output fall into one element. Packed weights are w + 128; the sums start at
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

struct Int8Tile {
  static constexpr int kRows = 6;
  static constexpr int kAccumulators = 6;
  static constexpr int kMaxPanels = 1;
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
    Lanes sums[kTileRows][kPanels];
    for (int r = 0; r < kTileRows; ++r) sums[r][0] = Lanes::zero();

    WeightFetcher<kPanels, kInt8GroupBytes> fetcher(ahead);
    for (std::size_t g = 0; g < groups; ++g, weights += kInt8GroupBytes) {
      fetcher.step(weights, panel_bytes);
      Pairs values[kTileRows];
      Outputs dots[kTileRows];
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        values[r].take(args.x_quantized.values + (first_group[r] + g) * kInt8Group);
        dots[r].low = dots[r].high = _mm256_set1_epi32(args.x_quantized.offsets[first_group[r] + g]);
      }
      add_products(weights, values, dots);
      const Lanes panel_scales = Lanes::load(reinterpret_cast<const float*>(weights + kQuads * kQuadBytes));
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        const Lanes scale = Lanes::mul(Lanes::all(args.x_quantized.scales[first_group[r] + g]), panel_scales);
        const Lanes exact = {_mm256_cvtepi32_ps(dots[r].low), _mm256_cvtepi32_ps(dots[r].high)};
        sums[r][0] = Lanes::fma(exact, scale, sums[r][0]);
      }
    }
    store_tile(args, row, panel, sums);
  }

 private:
  // Integers of the sixteen outputs of a panel.
  struct Outputs {
    __m256i low, high;
  };

  // A group of activations in 16 bit: those of even inputs and those of odd ones, so that an element of 32
  // bit holds two of a quad.
  struct alignas(32) Pairs {
    std::int16_t even[kInt8Group / 2], odd[kInt8Group / 2];

    [[gnu::always_inline]] void take(const std::int8_t* values) {
#pragma GCC unroll 2
      for (std::uint32_t k = 0; k < kInt8Group; k += 32) {
        const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + k));
        _mm256_store_si256(reinterpret_cast<__m256i*>(even + k / 2),
                           _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
        _mm256_store_si256(reinterpret_cast<__m256i*>(odd + k / 2), _mm256_srai_epi16(bytes, 8));
      }
    }
  };

  // Adds to dots[r] the dot products of row r with the unsigned weights of a group.
  template <int kTileRows>
  [[gnu::always_inline]] static void add_products(const std::byte* weights, const Pairs (&values)[kTileRows],
                                                  Outputs (&dots)[kTileRows]) {
    const __m256i mask = _mm256_set1_epi16(0xff);
#pragma GCC unroll 2
    for (std::uint32_t q = 0; q < kQuads; ++q) {
      const __m256i* quads = reinterpret_cast<const __m256i*>(weights + q * kQuadBytes);
      const Outputs bytes = {_mm256_loadu_si256(quads), _mm256_loadu_si256(quads + 1)};
      const Outputs even = {_mm256_and_si256(bytes.low, mask), _mm256_and_si256(bytes.high, mask)};
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) add_pair(even, values[r].even + 2 * q, dots[r]);
      const Outputs odd = {_mm256_srli_epi16(bytes.low, 8), _mm256_srli_epi16(bytes.high, 8)};
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) add_pair(odd, values[r].odd + 2 * q, dots[r]);
    }
  }

  // Two inputs of each output.
  [[gnu::always_inline]] static void add_pair(Outputs weights, const std::int16_t* pair, Outputs& dots) {
    std::int32_t bits;
    std::memcpy(&bits, pair, sizeof(bits));
    const __m256i value = _mm256_set1_epi32(bits);
    add(dots.low, _mm256_madd_epi16(weights.low, value));
    add(dots.high, _mm256_madd_epi16(weights.high, value));
  }
  // GCC would make the products of all rows first, and keep them in memory: it cannot move this.
  [[gnu::always_inline]] static void add(__m256i& sum, __m256i products) {
    asm volatile("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));
  }
};

}  // namespace

void matmul_int8(const MatmulArgs& args) noexcept { RowTiles<Int8Tile>::run(args); }

}  // namespace colibri::kernels::avx2
