// Vector body of the f32 and bf16 matrix products: broadcast one input of each row, load
// sixteen weights of each panel, one fused multiply-add per accumulator.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/vector/row_tiles.hpp"

namespace colibri::kernels {
namespace {

template <class L, class Weight>
struct FloatTile {
  static constexpr int kRows = L::kTileRows;
  static constexpr int kAccumulators = L::kTileAccumulators;
  static constexpr int kMaxPanels = L::kTilePanels;
  static constexpr int kStreamAccumulators = L::kStreamAccumulators;
  static constexpr std::uint32_t kStretchInputs = 8;  // lines of a cache, whole ones

  template <int kTileRows, int kPanels>
  static void tile(const MatmulArgs& args, std::uint64_t panel_bytes, std::uint32_t row, std::uint32_t panel,
                   const WeightsAhead& ahead) {
    const float* x[kTileRows];
    for (int r = 0; r < kTileRows; ++r) {
      x[r] = args.x + std::size_t{source_row(args, row + static_cast<std::uint32_t>(r))} * args.x_stride;
    }
    const Weight* weights = reinterpret_cast<const Weight*>(args.weights.data + panel * panel_bytes);
    const std::size_t panel_elements = panel_bytes / sizeof(Weight);

    L sums[kTileRows][kPanels];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) sums[r][p] = L::zero();
    }
    const auto add_input = [&](std::size_t k) {
      L w[kPanels];
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) w[p] = L::load_apart(weights + p * panel_elements);
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        const L value = L::all(x[r][k]);
#pragma GCC unroll 16
        for (int p = 0; p < kPanels; ++p) sums[r][p] = L::fma(value, w[p], sums[r][p]);
      }
      weights += kPanelOutputs;
    };
    WeightFetcher<kPanels, kStretchInputs * kPanelOutputs * sizeof(Weight)> fetcher(ahead);
    const std::uint32_t inputs = args.weights.inputs;
    std::size_t k = 0;
    while (k + kStretchInputs <= inputs) {
      fetcher.step(reinterpret_cast<const std::byte*>(weights), panel_bytes);
#pragma GCC unroll 2
      for (std::uint32_t i = 0; i < kStretchInputs; ++i) add_input(k++);
    }
    for (; k < inputs; ++k) add_input(k);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) sums[r][p] = L::template together<Weight>(sums[r][p]);
    }
    store_tile(args, row, panel, sums);
  }
};

}  // namespace
}  // namespace colibri::kernels
