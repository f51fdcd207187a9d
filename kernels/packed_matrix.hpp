// The layout of a weight matrix as kernels read it and as `convert` writes it.
//
// A matrix W [outputs, inputs] is cut into panels of 16 outputs; a panel is contiguous,
// the last one is filled up with zero weights. Inside a panel:
//   f32      [inputs][16] float
//   bf16     [inputs][16] uint16
//   int8_g64 per group of 64 inputs (inputs padded with zeros to a multiple of 64):
//            [16 quads][16 outputs][4 inputs] uint8, each weight + 128, then
//            [16] float scales: 1088 bytes a group
//   int4_g32 per 64 inputs (padded like int8): for each of its two groups of 32
//            [4 quads][16 outputs][4 inputs] uint8, of which the low half is weight + 8 of
//            inputs 0..15 of the group and the high half that of inputs 16..31, so that
//            one load makes two vectors of quads; then [2 groups][16] bf16 scales:
//            576 bytes, 4.5 bits a weight
// Panels can be packed one at a time, so that a converter streams any size of matrix.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/export.hpp"
#include "kernels/number_format.hpp"

namespace colibri::kernels {

inline constexpr std::uint32_t kPanelOutputs = 16;
inline constexpr std::uint32_t kInt8GroupBytes = kPanelOutputs * kInt8Group + kPanelOutputs * sizeof(float);
inline constexpr std::uint32_t kInt4GroupBytes = kPanelOutputs * kInt4Group / 2;  // without the scales
inline constexpr std::uint32_t kInt4PairBytes = 2 * (kInt4GroupBytes + kPanelOutputs * sizeof(std::uint16_t));

// Sizes of a packed matrix. Exact for outputs, inputs < 2^31.
struct PackedShape {
  std::uint32_t panels;
  std::uint32_t padded_inputs;  // inputs rounded up to the format's group
  std::uint64_t panel_bytes;
  std::uint64_t bytes;  // panels * panel_bytes
};
COLIBRI_API PackedShape packed_shape(WeightFormat format, std::uint32_t outputs,
                                     std::uint32_t inputs) noexcept;

// A view of packed weights; `data` is 64-byte aligned and outlives the view.
struct PackedMatrix {
  WeightFormat format = WeightFormat::f32;
  std::uint32_t outputs = 0;
  std::uint32_t inputs = 0;
  const std::byte* data = nullptr;

  std::uint32_t panels() const noexcept { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }
};

// Packs one panel: `rows` [row_count <= 16, inputs] f32, row-major. `panel` has panel_bytes.
// int8: scale = max|w| of the group / 127, values round to nearest even; a group of zeros has scale 0.
// int4: see int4_group.hpp.
COLIBRI_API void pack_panel(WeightFormat format, const float* rows, std::uint32_t row_count,
                            std::uint32_t inputs, std::byte* panel) noexcept;

// Reads back one output row as f32 [inputs] (int8, int4: value * scale). Used for embeddings and tests.
COLIBRI_API void unpack_row(const PackedMatrix& matrix, std::uint32_t output, float* values) noexcept;

}  // namespace colibri::kernels
