// The matrix product of a set of rows, spread over the stage's threads.
#include "stages/row_tiles.hpp"

#include <algorithm>

namespace colibri {

void project(StageContext& context, const kernels::KernelTable& kernels, const kernels::PackedMatrix& weights,
             const RowsView& rows_in, std::uint32_t rows, float* y, std::size_t y_stride) {
  if (rows == 0) return;
  const std::uint32_t panels = weights.panels();
  const std::uint64_t panel_work = std::uint64_t{weights.inputs} * kernels::kPanelOutputs;
  const std::size_t tiles = tiles_for(std::size_t{rows} * panels, panel_work, context.workers());
  const std::size_t panel_tiles = std::min<std::size_t>(tiles, panels);
  const std::size_t row_tiles = std::min<std::size_t>((tiles + panel_tiles - 1) / panel_tiles, rows);
  const auto matmul = kernels.matmul[static_cast<std::size_t>(weights.format)];

  auto run_tile = [&](std::size_t tile) {
    const auto [panel_begin, panel_end] = tile_range(panels, panel_tiles, tile % panel_tiles);
    const auto [row_begin, row_end] = tile_range(rows, row_tiles, tile / panel_tiles);
    kernels::MatmulArgs args;
    args.weights = weights;
    args.x_stride = rows_in.stride;
    if (rows_in.row_index != nullptr) {
      args.x = rows_in.x;
      args.x_quantized = rows_in.quantized;
      args.row_index = rows_in.row_index + row_begin;
    } else {
      args.x = rows_in.x + row_begin * rows_in.stride;
      args.x_quantized = kernels::quantized_rows_from(rows_in.quantized, row_begin, weights.inputs);
    }
    args.rows = static_cast<std::uint32_t>(row_end - row_begin);
    args.y = y + row_begin * y_stride;
    args.y_stride = y_stride;
    args.panel_begin = static_cast<std::uint32_t>(panel_begin);
    args.panel_end = static_cast<std::uint32_t>(panel_end);
    matmul(args);
  };
  const std::size_t count = panel_tiles * row_tiles;
  if (count == 1) return run_tile(0);
  context.parallel(count, run_tile);
}

}  // namespace colibri
