// Packing of weight panels and reading rows back.
#include "kernels/packed_matrix.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/int4_group.hpp"
#include "kernels/int8_group.hpp"

namespace colibri::kernels {
namespace {

constexpr std::uint32_t kQuadInputs = 4;  // inputs that lie side by side in an integer panel
constexpr std::uint32_t kGroupWeightBytes = kPanelOutputs * kInt8Group;

// Where weight (input, lane) of an int8 group lies: [quad][output][input of the quad].
constexpr std::size_t int8_position(std::uint32_t input, std::uint32_t lane) noexcept {
  return (input / kQuadInputs) * (kPanelOutputs * kQuadInputs) + lane * kQuadInputs + input % kQuadInputs;
}

void pack_int8(const float* rows, std::uint32_t row_count, std::uint32_t inputs, std::byte* panel) noexcept {
  for (std::uint32_t begin = 0; begin < inputs; begin += kInt8Group, panel += kInt8GroupBytes) {
    const std::uint32_t count = std::min(kInt8Group, inputs - begin);
    std::memset(panel, 128, kGroupWeightBytes);
    float scales[kPanelOutputs] = {};
    for (std::uint32_t lane = 0; lane < row_count; ++lane) {
      std::int8_t quantized[kInt8Group];
      scales[lane] = quantize_int8_group(rows + std::size_t{lane} * inputs + begin, count, quantized);
      for (std::uint32_t k = 0; k < count; ++k) {
        panel[int8_position(k, lane)] = static_cast<std::byte>(quantized[k] + 128);
      }
    }
    std::memcpy(panel + kGroupWeightBytes, scales, sizeof(scales));
  }
}

void unpack_int8(const std::byte* panel, std::uint32_t lane, std::uint32_t inputs, float* values) noexcept {
  for (std::uint32_t begin = 0; begin < inputs; begin += kInt8Group, panel += kInt8GroupBytes) {
    const std::uint32_t count = std::min(kInt8Group, inputs - begin);
    float scale;
    std::memcpy(&scale, panel + kGroupWeightBytes + lane * sizeof(float), sizeof(scale));
    for (std::uint32_t k = 0; k < count; ++k) {
      const int weight = std::to_integer<int>(panel[int8_position(k, lane)]) - 128;
      values[begin + k] = static_cast<float>(weight) * scale;
    }
  }
}

// Where weight (input, lane) of an int4 group lies: the byte, and how far its half is shifted.
struct Int4Position {
  std::size_t byte;
  std::uint32_t shift;
};
constexpr Int4Position int4_position(std::uint32_t input, std::uint32_t lane) noexcept {
  constexpr std::uint32_t kHalfInputs = kInt4Group / 2;
  return {int8_position(input % kHalfInputs, lane), input < kHalfInputs ? 0U : 4U};
}

// Where the scale of `lane` for group 0 or 1 of a pair lies.
constexpr std::size_t int4_scale_position(std::uint32_t group, std::uint32_t lane) noexcept {
  return 2 * kInt4GroupBytes + (group * kPanelOutputs + lane) * sizeof(std::uint16_t);
}

void pack_int4(const float* rows, std::uint32_t row_count, std::uint32_t inputs, std::byte* panel) noexcept {
  for (std::uint32_t begin = 0; begin < inputs; begin += 2 * kInt4Group, panel += kInt4PairBytes) {
    std::memset(panel, 0x88, 2 * kInt4GroupBytes);
    std::memset(panel + 2 * kInt4GroupBytes, 0, kInt4PairBytes - 2 * kInt4GroupBytes);
    for (std::uint32_t group = 0; group < 2 && begin + group * kInt4Group < inputs; ++group) {
      const std::uint32_t first = begin + group * kInt4Group;
      const std::uint32_t count = std::min(kInt4Group, inputs - first);
      for (std::uint32_t lane = 0; lane < row_count; ++lane) {
        std::int8_t quantized[kInt4Group];
        const std::uint16_t scale =
            quantize_int4_group(rows + std::size_t{lane} * inputs + first, count, quantized);
        std::memcpy(panel + int4_scale_position(group, lane), &scale, sizeof(scale));
        for (std::uint32_t k = 0; k < count; ++k) {
          const Int4Position at = int4_position(k, lane);
          std::byte& byte = panel[group * kInt4GroupBytes + at.byte];
          byte &= std::byte{0xf0} >> at.shift;
          byte |= static_cast<std::byte>(quantized[k] + 8) << at.shift;
        }
      }
    }
  }
}

void unpack_int4(const std::byte* panel, std::uint32_t lane, std::uint32_t inputs, float* values) noexcept {
  for (std::uint32_t k = 0; k < inputs; ++k) {
    const std::byte* pair = panel + k / (2 * kInt4Group) * kInt4PairBytes;
    const std::uint32_t group = k / kInt4Group % 2;
    const Int4Position at = int4_position(k % kInt4Group, lane);
    std::uint16_t scale;
    std::memcpy(&scale, pair + int4_scale_position(group, lane), sizeof(scale));
    const std::byte weight = (pair[group * kInt4GroupBytes + at.byte] >> at.shift) & std::byte{0xf};
    values[k] = static_cast<float>(std::to_integer<int>(weight) - 8) * bf16_to_f32(scale);
  }
}

}  // namespace

PackedShape packed_shape(WeightFormat format, std::uint32_t outputs, std::uint32_t inputs) noexcept {
  PackedShape shape{};
  shape.panels = (outputs + kPanelOutputs - 1) / kPanelOutputs;
  shape.padded_inputs = inputs;
  switch (format) {
    case WeightFormat::f32: shape.panel_bytes = std::uint64_t{inputs} * kPanelOutputs * sizeof(float); break;
    case WeightFormat::bf16:
      shape.panel_bytes = std::uint64_t{inputs} * kPanelOutputs * sizeof(std::uint16_t);
      break;
    case WeightFormat::int8_g64: {
      const std::uint32_t groups = (inputs + kInt8Group - 1) / kInt8Group;
      shape.padded_inputs = groups * kInt8Group;
      shape.panel_bytes = std::uint64_t{groups} * kInt8GroupBytes;
      break;
    }
    case WeightFormat::int4_g32: {
      const std::uint32_t pairs = (inputs + kInt8Group - 1) / kInt8Group;
      shape.padded_inputs = pairs * kInt8Group;
      shape.panel_bytes = std::uint64_t{pairs} * kInt4PairBytes;
      break;
    }
  }
  shape.bytes = shape.panels * shape.panel_bytes;
  return shape;
}

void pack_panel(WeightFormat format, const float* rows, std::uint32_t row_count, std::uint32_t inputs,
                std::byte* panel) noexcept {
  if (format == WeightFormat::int8_g64) return pack_int8(rows, row_count, inputs, panel);
  if (format == WeightFormat::int4_g32) return pack_int4(rows, row_count, inputs, panel);
  // Input by input, because that is the order of the panel; the missing rows of the last one are zero.
  for (std::uint32_t k = 0; k < inputs; ++k) {
    float column[kPanelOutputs] = {};
    for (std::uint32_t lane = 0; lane < row_count; ++lane)
      column[lane] = rows[std::size_t{lane} * inputs + k];
    if (format == WeightFormat::f32) {
      std::memcpy(panel, column, sizeof(column));
      panel += sizeof(column);
    } else {
      std::uint16_t rounded[kPanelOutputs];
      std::transform(std::begin(column), std::end(column), rounded, f32_to_bf16);
      std::memcpy(panel, rounded, sizeof(rounded));
      panel += sizeof(rounded);
    }
  }
}

void unpack_row(const PackedMatrix& matrix, std::uint32_t output, float* values) noexcept {
  const std::uint64_t panel_bytes = packed_shape(matrix.format, matrix.outputs, matrix.inputs).panel_bytes;
  const std::byte* panel = matrix.data + output / kPanelOutputs * panel_bytes;
  const std::uint32_t lane = output % kPanelOutputs;
  if (matrix.format == WeightFormat::int8_g64) return unpack_int8(panel, lane, matrix.inputs, values);
  if (matrix.format == WeightFormat::int4_g32) return unpack_int4(panel, lane, matrix.inputs, values);
  for (std::uint32_t k = 0; k < matrix.inputs; ++k) {
    const std::size_t element = std::size_t{k} * kPanelOutputs + lane;
    if (matrix.format == WeightFormat::f32) {
      std::memcpy(values + k, panel + element * sizeof(float), sizeof(float));
    } else {
      std::uint16_t weight;
      std::memcpy(&weight, panel + element * sizeof(weight), sizeof(weight));
      values[k] = bf16_to_f32(weight);
    }
  }
}

}  // namespace colibri::kernels
