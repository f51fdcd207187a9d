// TransformerBlock: attention and dense FFN of one layer on the rows of one wave.
//
// Works in place on the step's residual rows. All scratch is for one wave at a time; only
// the rotation angles, the same in every layer, are kept for all rows of all steps in
// flight. Used by one thread at a time, which may spread the work over the context's.
#pragma once

#include <colibri/services.hpp>
#include <colibri/stage.hpp>
#include <cstdint>

#include "stages/dense_weights.hpp"
#include "stages/memory_cursor.hpp"
#include "stages/row_tiles.hpp"

namespace colibri {

class TransformerBlock {
 public:
  static std::uint64_t memory_bytes(const PlanInputs& inputs);
  // `context` and its services and memory (memory_bytes) outlive the block.
  explicit TransformerBlock(StageContext& context);

  // Rotation angles of the wave's rows; before its first layer.
  void prepare(const Wave& wave);
  // residual += attention(norm(residual)); stores the keys and values of all rows first.
  // Returns how many keys the rows attended to.
  std::uint64_t attention(const Wave& wave, std::uint32_t layer);
  // residual += ffn(norm(residual)), for layers without experts.
  void dense_ffn(const Wave& wave, std::uint32_t layer);

 private:
  struct Scratch {
    float* normed = nullptr;         // [wave_rows, hidden]; after use also the projection back to hidden
    float* qkv = nullptr;            // [wave_rows, query_size + 2 * kv_size]
    float* attended = nullptr;       // [wave_rows, query_size]
    float* gate = nullptr;           // [wave_rows, widest dense intermediate]
    float* up = nullptr;             // the same
    std::byte* quantized = nullptr;  // rows of the widest matrix input; null unless weights are integers
    float* cosines = nullptr;        // [in_flight, max_rows, rotary_dim / 2]
    float* sines = nullptr;          // the same
  };
  static Scratch lay_out(MemoryCursor& cursor, const PlanInputs& inputs);

  // Norm of the wave's residual rows into scratch_.normed, quantised when `weights` needs it.
  RowsView normalize(const Wave& wave, const float* norm, const kernels::PackedMatrix& weights);
  // Rows [0, rows) of x as input of `weights`.
  RowsView view(float* x, std::uint32_t rows, const kernels::PackedMatrix& weights);
  // Bias, q/k norm, clamp, rotation of one row, then its key and value into the KV pages.
  void finish_qkv_row(const Wave& wave, std::uint32_t row_in_wave, std::uint32_t layer);
  std::uint64_t attend_rows(const Wave& wave, std::uint32_t layer);
  // residual += projection (+ bias)
  void add_to_residual(const Wave& wave, const float* projection, const float* bias);

  std::size_t angle_offset(const Wave& wave, std::uint32_t row_in_wave) const noexcept {
    const std::size_t row =
        wave.step->slot * std::size_t{services_.plan.max_rows} + wave.row_begin + row_in_wave;
    return row * (spec_.rope.rotary_dim / 2);
  }

  StageContext& context_;
  const Services& services_;
  const ModelSpec& spec_;
  const kernels::KernelTable& kernels_;
  Scratch scratch_;
};

}  // namespace colibri
