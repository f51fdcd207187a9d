// ExpertBatch: the FFN of several experts at once, down(silu(gate(x)) * up(x)).
//
// Three passes over all pieces together (gate and up, quantise, down), each cut into tiles
// over (piece, panels), so that many small experts keep all threads as busy as one big
// expert. A piece is an expert and a run of its rows; the result of a row does not depend
// on how rows were cut into pieces or panels into tiles.
#pragma once

#include <colibri/stage.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "stages/memory_cursor.hpp"

namespace colibri {

struct ExpertPiece {
  kernels::PackedMatrix gate, up, down;
  const float* x = nullptr;                  // [*, hidden] rows of the step
  kernels::QuantizedRows x_quantized;        // the same for integer weights
  const std::uint32_t* row_index = nullptr;  // [rows] step rows; null: rows first_row, first_row + 1, ...
  std::uint32_t first_row = 0;               // when row_index is null
  std::uint32_t rows = 0;
  float* out = nullptr;  // [rows, hidden]
};

class ExpertBatch {
 public:
  // Most rows of all pieces of one batch together.
  static std::uint32_t rows_limit(std::uint32_t max_rows, std::uint32_t picks) noexcept;

  // widest: the largest intermediate size of any piece.
  void lay_out(MemoryCursor& memory, kernels::WeightFormat format, std::uint32_t rows, std::uint32_t widest);
  // Computes all pieces; their rows together are at most the limit.
  void run(StageContext& context, const kernels::KernelTable& kernels, std::span<const ExpertPiece> pieces);

 private:
  // Items [begin, end) of one piece.
  struct Tile {
    std::uint32_t piece, begin, end;
  };
  struct Work {
    std::uint64_t items, cost;  // multiply-adds an item
  };
  // Fills tiles_ with ranges of each piece's items, in proportion to their cost.
  template <class WorkOf>
  void cut(StageContext& context, std::span<const ExpertPiece> pieces, WorkOf&& work_of);
  template <class Body>
  void each_tile(StageContext& context, Body&& body);
  void gate_and_up(const kernels::KernelTable& kernels, const ExpertPiece& piece, const Tile& tile);
  kernels::QuantizedRows quantized_of(std::uint32_t piece) const noexcept;

  float* gate_ = nullptr;  // [rows, widest] gate, then the activated product; a piece's rows are contiguous
  float* up_ = nullptr;    // [rows, widest]
  std::byte* quantized_ = nullptr;
  std::uint32_t rows_ = 0;
  std::uint32_t widest_ = 0;
  std::vector<std::uint32_t> bases_;  // [pieces] first row of a piece in the buffers
  std::vector<Tile> tiles_;
};

}  // namespace colibri
