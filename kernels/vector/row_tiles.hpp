// Cutting a matrix product into register tiles of a few rows by a few panels.
//
// The cut only decides what is computed together: within a tile every output element has
// its own accumulator that runs over the inputs in ascending order.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.hpp"

namespace colibri::kernels {
namespace {

// Weights that are used again for the next rows should still be in the second-level cache.
constexpr std::uint64_t kPanelBlockBytes = 256 * 1024;

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

// Kernel offers kRows (most rows of a tile), kAccumulators (most rows * panels), kMaxPanels, kSingleRowPanels
// (of a tile of one row, which waits for memory rather than for sums), and
//   template <int kRows, int kPanels> static void tile(args, panel_bytes, row, panel).
template <class Kernel>
struct RowTiles {
  static void run(const MatmulArgs& args) {
    const PackedMatrix& w = args.weights;
    const std::uint64_t panel_bytes = packed_shape(w.format, w.outputs, w.inputs).panel_bytes;
    const std::uint32_t tiles = (args.rows + Kernel::kRows - 1) / Kernel::kRows;
    if (tiles == 0) return;
    std::uint32_t block = args.panel_end - args.panel_begin;
    if (tiles > 1) {
      const std::uint64_t fitting = kPanelBlockBytes / (panel_bytes + 1) & ~std::uint64_t{1};
      if (fitting < block) block = fitting < 2 ? 2 : static_cast<std::uint32_t>(fitting);
    }
    for (std::uint32_t begin = args.panel_begin; begin < args.panel_end; begin += block) {
      const std::uint32_t end = args.panel_end - begin < block ? args.panel_end : begin + block;
      // Rows are dealt out evenly: 13 rows are 7 + 6, not 12 + 1.
      for (std::uint32_t t = 0, row = 0; t < tiles; ++t) {
        const std::uint32_t count = args.rows / tiles + (t < args.rows % tiles ? 1 : 0);
        dispatch<Kernel::kRows>(args, panel_bytes, row, count, begin, end);
        row += count;
      }
    }
  }

 private:
  // The most panels, a power of two, that `rows` rows leave registers for.
  static constexpr int panels_at_once(int rows) {
    if (rows == 1) return Kernel::kSingleRowPanels;
    int panels = Kernel::kMaxPanels;
    while (panels > 1 && rows * panels > Kernel::kAccumulators) panels /= 2;
    return panels;
  }

  template <int kRows>
  static void dispatch(const MatmulArgs& args, std::uint64_t panel_bytes, std::uint32_t row,
                       std::uint32_t count, std::uint32_t begin, std::uint32_t end) {
    if (count == kRows) return panels<kRows, panels_at_once(kRows)>(args, panel_bytes, row, begin, end);
    if constexpr (kRows > 1) dispatch<kRows - 1>(args, panel_bytes, row, count, begin, end);
  }

  template <int kRows, int kPanels>
  static void panels(const MatmulArgs& args, std::uint64_t panel_bytes, std::uint32_t row,
                     std::uint32_t begin, std::uint32_t end) {
    for (; end - begin >= kPanels; begin += kPanels) {
      Kernel::template tile<kRows, kPanels>(args, panel_bytes, row, begin);
    }
    if constexpr (kPanels > 1) panels<kRows, kPanels / 2>(args, panel_bytes, row, begin, end);
  }
};

}  // namespace
}  // namespace colibri::kernels
