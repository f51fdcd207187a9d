#include "stages/expert_batch.hpp"

#include <algorithm>
#include <cassert>

#include "stages/tiling.hpp"

namespace colibri {
namespace {

// Rows of a batch: enough to fill the processor, few enough for the activations to stay in cache.
constexpr std::uint32_t kBatchRows = 512;

bool integer_weights(const ExpertPiece& piece) noexcept {
  return kernels::has_integer_weights(piece.gate.format);
}

// The rows of a piece that starts at first_row, as a matmul sees them.
void set_rows(kernels::MatmulArgs& args, const ExpertPiece& piece) noexcept {
  args.rows = piece.rows;
  args.x = piece.x;
  args.x_stride = piece.gate.inputs;
  args.x_quantized = piece.x_quantized;
  args.row_index = piece.row_index;
  if (piece.row_index != nullptr) return;
  if (integer_weights(piece)) {
    args.x_quantized = kernels::quantized_rows_from(piece.x_quantized, piece.first_row, piece.gate.inputs);
  } else {
    args.x += std::size_t{piece.first_row} * piece.gate.inputs;
  }
}

}  // namespace

std::uint32_t ExpertBatch::rows_limit(std::uint32_t max_rows, std::uint32_t picks) noexcept {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(kBatchRows, std::uint64_t{max_rows} * picks));
}

void ExpertBatch::lay_out(MemoryCursor& memory, kernels::WeightFormat format, std::uint32_t rows,
                          std::uint32_t widest) {
  rows_ = rows;
  widest_ = widest;
  gate_ = memory.take<float>(std::uint64_t{rows} * widest);
  up_ = memory.take<float>(std::uint64_t{rows} * widest);
  if (kernels::has_integer_weights(format)) quantized_ = memory.take_quantized(rows, widest);
}

template <class WorkOf>
void ExpertBatch::cut(StageContext& context, std::span<const ExpertPiece> pieces, WorkOf&& work_of) {
  tiles_.clear();
  std::uint64_t total = 0;
  for (const ExpertPiece& piece : pieces) {
    const Work work = work_of(piece);
    total += work.items * work.cost;
  }
  const std::uint64_t most = std::uint64_t{4} * context.workers();
  const std::uint64_t wanted = std::clamp<std::uint64_t>(total / kTileMultiplyAdds, 1, most);
  const std::uint64_t cost_per_tile = std::max<std::uint64_t>(total / wanted, 1);
  for (std::uint32_t p = 0; p < pieces.size(); ++p) {
    const Work work = work_of(pieces[p]);
    const std::uint64_t share = (work.items * work.cost + cost_per_tile / 2) / cost_per_tile;
    const std::uint64_t parts = std::clamp<std::uint64_t>(share, 1, std::max<std::uint64_t>(work.items, 1));
    for (std::uint64_t part = 0; part < parts; ++part) {
      const auto [begin, end] = tile_range(work.items, parts, part);
      if (begin < end)
        tiles_.push_back({p, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
    }
  }
}

// SwiGLU of one piece for a range of panels: both products and the activation while they are in cache.
void ExpertBatch::gate_and_up(const kernels::KernelTable& kernels, const ExpertPiece& piece,
                              const Tile& tile) {
  kernels::MatmulArgs args;
  set_rows(args, piece);
  args.panel_begin = tile.begin;
  args.panel_end = tile.end;
  args.y_stride = piece.gate.outputs;
  float* gate = gate_ + std::size_t{bases_[tile.piece]} * widest_;
  float* up = up_ + std::size_t{bases_[tile.piece]} * widest_;
  args.weights = piece.gate;
  args.y = gate;
  kernels.matmul[static_cast<int>(piece.gate.format)](args);
  args.weights = piece.up;
  args.y = up;
  kernels.matmul[static_cast<int>(piece.up.format)](args);
  const std::size_t first = std::size_t{tile.begin} * kernels::kPanelOutputs;
  const std::size_t last =
      std::min<std::size_t>(std::size_t{tile.end} * kernels::kPanelOutputs, piece.gate.outputs);
  for (std::uint32_t row = 0; row < piece.rows; ++row) {
    const std::size_t at = row * args.y_stride + first;
    kernels.silu_multiply(gate + at, up + at, last - first, gate + at);
  }
}

kernels::QuantizedRows ExpertBatch::quantized_of(std::uint32_t piece) const noexcept {
  return kernels::quantized_rows_from(kernels::quantized_rows_at(quantized_, rows_, widest_), bases_[piece],
                                      widest_);
}

template <class Body>
void ExpertBatch::each_tile(StageContext& context, Body&& body) {
  if (tiles_.size() == 1) {
    body(tiles_.front());
  } else {
    context.parallel(tiles_.size(), [&](std::size_t i) { body(tiles_[i]); });
  }
}

void ExpertBatch::run(StageContext& context, const kernels::KernelTable& kernels,
                      std::span<const ExpertPiece> pieces) {
  if (pieces.empty()) return;
  bases_.clear();
  std::uint32_t rows = 0;
  for (const ExpertPiece& piece : pieces) {
    bases_.push_back(rows);
    rows += piece.rows;
  }
  assert(rows <= rows_);

  cut(context, pieces, [](const ExpertPiece& piece) {
    return Work{piece.gate.panels(),
                std::uint64_t{2} * kernels::kPanelOutputs * piece.gate.inputs * piece.rows};
  });
  each_tile(context, [&](const Tile& tile) { gate_and_up(kernels, pieces[tile.piece], tile); });

  if (integer_weights(pieces.front())) {
    cut(context, pieces, [](const ExpertPiece& piece) {
      return Work{piece.rows, std::uint64_t{8} * piece.down.inputs};
    });
    each_tile(context, [&](const Tile& tile) {
      const std::uint32_t inputs = pieces[tile.piece].down.inputs;
      const float* from =
          gate_ + std::size_t{bases_[tile.piece]} * widest_ + std::size_t{tile.begin} * inputs;
      kernels.quantize_rows(from, inputs, tile.end - tile.begin, inputs, quantized_of(tile.piece),
                            tile.begin);
    });
  }

  cut(context, pieces, [](const ExpertPiece& piece) {
    return Work{piece.down.panels(), std::uint64_t{kernels::kPanelOutputs} * piece.down.inputs * piece.rows};
  });
  each_tile(context, [&](const Tile& tile) {
    const ExpertPiece& piece = pieces[tile.piece];
    kernels::MatmulArgs args;
    args.weights = piece.down;
    args.rows = piece.rows;
    args.x = gate_ + std::size_t{bases_[tile.piece]} * widest_;
    args.x_stride = piece.down.inputs;
    if (integer_weights(piece)) args.x_quantized = quantized_of(tile.piece);
    args.y = piece.out;
    args.y_stride = piece.down.outputs;
    args.panel_begin = tile.begin;
    args.panel_end = tile.end;
    kernels.matmul[static_cast<int>(piece.down.format)](args);
  });
}

}  // namespace colibri
