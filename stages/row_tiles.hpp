// The two ways in which the dense stages spread work over rows: ranges of independent
// items, and a matrix product of a set of rows. Small work runs inline (tiling.hpp says
// what is small); results never depend on the cut, since each output element is made
// whole by one tile.
#pragma once

#include <colibri/stage.hpp>
#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.hpp"
#include "stages/tiling.hpp"

namespace colibri {

// Calls fn(begin, end) for ranges that together cover [0, count); work in multiply-adds.
template <class Fn>
void for_ranges(StageContext& context, std::uint32_t count, std::uint64_t work_per_item, Fn&& fn) {
  const std::size_t tiles = tiles_for(count, work_per_item, context.workers());
  if (tiles <= 1) {
    if (count > 0) fn(std::uint32_t{0}, count);
    return;
  }
  context.parallel(tiles, [&](std::size_t tile) {
    const auto [begin, end] = tile_range(count, tiles, tile);
    fn(static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end));
  });
}

// The rows that a matrix product reads: f32, and the same quantised when the weights are integers.
struct RowsView {
  const float* x = nullptr;  // [*, stride]
  std::size_t stride = 0;
  kernels::QuantizedRows quantized;
  const std::uint32_t* row_index = nullptr;  // [rows], or null: rows 0, 1, ...
};

// y [rows, y_stride] = x W^T, cut by panels first (each panel is then read once) and by rows when there are
// fewer panels than tiles.
void project(StageContext& context, const kernels::KernelTable& kernels, const kernels::PackedMatrix& weights,
             const RowsView& rows_in, std::uint32_t rows, float* y, std::size_t y_stride);

}  // namespace colibri
