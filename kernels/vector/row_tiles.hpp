// Cutting a matrix product into register tiles of a few rows by a few panels.
//
// The cut only decides what is computed together: within a tile every output element has
// its own accumulator that runs over the inputs in ascending order.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.hpp"
#include "kernels/vector/weight_prefetch.hpp"

namespace colibri::kernels {
namespace {

// Weights that are used again for the next rows should still be in the second-level cache.
constexpr std::uint64_t kPanelBlockBytes = 256 * 1024;
// What is fetched ahead while weights are streamed: it arrives in time and stays in the first-level
// cache till then.
constexpr std::size_t kBytesAhead = 8192;

// Source row of row `row` of the result.
inline std::uint32_t source_row(const MatmulArgs& args, std::uint32_t row) {
  return args.row_index == nullptr ? row : args.row_index[row];
}

// Stores tile [kRows][kPanels] of sixteen columns each, cutting the last panel at `outputs`.
template <class L, int kRows, int kPanels>
[[gnu::always_inline]] inline void store_tile(const MatmulArgs& args, std::uint32_t row, std::uint32_t panel,
                                              const L (&tile)[kRows][kPanels]) {
#pragma GCC unroll 16
  for (int p = 0; p < kPanels; ++p) {
    const std::uint32_t column = (panel + p) * kPanelOutputs;
    const std::uint32_t columns = args.weights.outputs - column;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      float* y = args.y + (row + r) * args.y_stride + column;
      columns >= kPanelOutputs ? tile[r][p].store(y) : tile[r][p].store_first(y, columns);
    }
  }
}

// Kernel offers kRows (most rows of a tile), kAccumulators (most rows * panels), kMaxPanels,
// kStreamAccumulators (see below), and
//   template <int kRows, int kPanels> static void tile(args, panel_bytes, row, panel, WeightsAhead).
//
// Weights that no tile has had yet come from memory: these are streamed, with as few panels at a time as
// make kStreamAccumulators, since few streams are followed best: 8 rows of int8 weights in memory went from
// 13 to 30 GB/s by that. Where there are several tiles of rows, the panels are taken in blocks, and all
// tiles together fetch the next block while they compute with this one.
template <class Kernel>
struct RowTiles {
  static void run(const MatmulArgs& args) {
    const PackedMatrix& w = args.weights;
    const std::uint64_t panel_bytes = packed_shape(w.format, w.outputs, w.inputs).panel_bytes;
    const std::uint32_t tiles = (args.rows + Kernel::kRows - 1) / Kernel::kRows;
    if (tiles == 0) return;
    if (tiles == 1) return stream<Kernel::kRows>(args, panel_bytes, args.rows, args.panel_end);
    const std::uint32_t block = block_panels(panel_bytes, tiles);
    for (std::uint32_t begin = args.panel_begin; begin < args.panel_end; begin += block) {
      const std::uint32_t end = args.panel_end - begin < block ? args.panel_end : begin + block;
      const bool first = begin == args.panel_begin;
      const std::uint32_t turns = first ? tiles - 1 : tiles;
      // Rows are dealt out evenly: 13 rows are 7 + 6, not 12 + 1.
      for (std::uint32_t t = 0, row = 0; t < tiles; ++t) {
        const std::uint32_t count = args.rows / tiles + (t < args.rows % tiles ? 1 : 0);
        if (first && t == 0) {
          stream<Kernel::kRows>(args, panel_bytes, count, end);
        } else {
          const WeightsAhead next = {
              .distance = block * panel_bytes, .turn = t + turns - tiles, .turns = turns};
          reuse<Kernel::kRows>(args, panel_bytes, row, count, begin, end, block, next);
        }
        row += count;
      }
    }
  }

 private:
  // As many bytes of weights as of activations, or about, but no more than stay in the second-level cache.
  static std::uint32_t block_panels(std::uint64_t panel_bytes, std::uint32_t tiles) {
    const std::uint64_t fitting = kPanelBlockBytes / (panel_bytes + 1);
    const std::uint64_t wanted = std::uint64_t{tiles} * Kernel::kRows / kPanelOutputs;
    const std::uint64_t panels =
        (wanted < fitting ? wanted : fitting) / Kernel::kMaxPanels * Kernel::kMaxPanels;
    return panels == 0 ? Kernel::kMaxPanels : static_cast<std::uint32_t>(panels);
  }

  // The most panels, a power of two, that `rows` rows leave registers for.
  static constexpr int panels_at_once(int rows) {
    int panels = Kernel::kMaxPanels;
    while (panels > 1 && rows * panels > Kernel::kAccumulators) panels /= 2;
    return panels;
  }

  static constexpr int stream_panels(int rows) {
    int panels = 1;
    while (rows * panels < Kernel::kStreamAccumulators && panels < panels_at_once(rows)) panels *= 2;
    return panels;
  }

  // The first `count` rows and the panels up to `end`.
  template <int kRows>
  static void stream(const MatmulArgs& args, std::uint64_t panel_bytes, std::uint32_t count,
                     std::uint32_t end) {
    if (count != kRows) {
      if constexpr (kRows > 1) stream<kRows - 1>(args, panel_bytes, count, end);
      return;
    }
    constexpr int kPanels = stream_panels(kRows);
    const WeightsAhead ahead = {.distance = kBytesAhead / kPanels, .turn = 0, .turns = 1};
    panels<kRows, kPanels>(args, panel_bytes, 0, args.panel_begin, end, 0, ahead);
  }

  template <int kRows>
  static void reuse(const MatmulArgs& args, std::uint64_t panel_bytes, std::uint32_t row, std::uint32_t count,
                    std::uint32_t begin, std::uint32_t end, std::uint32_t block, const WeightsAhead& next) {
    if (count == kRows)
      return panels<kRows, panels_at_once(kRows)>(args, panel_bytes, row, begin, end, block, next);
    // Of several tiles none has less than half of the rows.
    if constexpr (kRows > Kernel::kRows / 2)
      reuse<kRows - 1>(args, panel_bytes, row, count, begin, end, block, next);
  }

  // Panels that lie `block` on are fetched if they are among those of the call; 0: `ahead` goes for all.
  template <int kRows, int kPanels>
  static void panels(const MatmulArgs& args, std::uint64_t panel_bytes, std::uint32_t row,
                     std::uint32_t begin, std::uint32_t end, std::uint32_t block, const WeightsAhead& ahead) {
    for (; end - begin >= kPanels; begin += kPanels) {
      const bool there = begin + block < args.panel_end;
      Kernel::template tile<kRows, kPanels>(args, panel_bytes, row, begin, there ? ahead : WeightsAhead{});
    }
    if constexpr (kPanels > 1) panels<kRows, kPanels / 2>(args, panel_bytes, row, begin, end, block, ahead);
  }
};

}  // namespace
}  // namespace colibri::kernels
