// Reference matrix products and the quantisation of activations.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/int8_group.hpp"
#include "kernels/scalar/scalar_kernels.hpp"

namespace colibri::kernels::scalar {
namespace {

using Accumulators = float[kPanelOutputs];

std::uint32_t source_row(const MatmulArgs& args, std::uint32_t row) noexcept {
  return args.row_index == nullptr ? row : args.row_index[row];
}

// Calls compute(panel bytes, source row, accumulators) for each panel and row and stores the columns that
// exist.
template <class Compute>
void for_each_tile(const MatmulArgs& args, Compute compute) noexcept {
  const PackedMatrix& w = args.weights;
  const std::uint64_t panel_bytes = packed_shape(w.format, w.outputs, w.inputs).panel_bytes;
  for (std::uint32_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const std::uint32_t column = panel * kPanelOutputs;
    const std::uint32_t columns = std::min(kPanelOutputs, w.outputs - column);
    for (std::uint32_t row = 0; row < args.rows; ++row) {
      Accumulators accumulators = {};
      compute(w.data + panel * panel_bytes, source_row(args, row), accumulators);
      std::copy_n(accumulators, columns, args.y + row * args.y_stride + column);
    }
  }
}

float widen(float weight) noexcept { return weight; }
float widen(std::uint16_t weight) noexcept { return bf16_to_f32(weight); }

template <class Weight>
void matmul_float(const MatmulArgs& args) noexcept {
  for_each_tile(args, [&](const std::byte* panel, std::uint32_t row, Accumulators& accumulators) {
    const float* x = args.x + row * args.x_stride;
    const Weight* weights = reinterpret_cast<const Weight*>(panel);  // [inputs][16]
    for (std::uint32_t k = 0; k < args.weights.inputs; ++k, weights += kPanelOutputs) {
      for (std::uint32_t lane = 0; lane < kPanelOutputs; ++lane) {
        accumulators[lane] = std::fma(x[k], widen(weights[lane]), accumulators[lane]);
      }
    }
  });
}

// Exact dot product of one output's 64 weights of a group with 64 activations.
std::int32_t group_dot(const std::byte* group, std::uint32_t lane, const std::int8_t* x) noexcept {
  std::int32_t sum = 0;
  for (std::uint32_t k = 0; k < kInt8Group; ++k) {
    const std::byte weight = group[k / 4 * (kPanelOutputs * 4) + lane * 4 + k % 4];
    sum += (std::to_integer<std::int32_t>(weight) - 128) * x[k];
  }
  return sum;
}

// The same for an int4 group of 32.
std::int32_t int4_group_dot(const std::byte* group, std::uint32_t lane, const std::int8_t* x) noexcept {
  std::int32_t sum = 0;
  for (std::uint32_t k = 0; k < kInt4Group; ++k) {
    const std::uint32_t half = k % (kInt4Group / 2);
    const std::byte pair = group[half / 4 * (kPanelOutputs * 4) + lane * 4 + half % 4];
    const std::byte weight = k == half ? pair & std::byte{0xf} : pair >> 4;
    sum += (std::to_integer<std::int32_t>(weight) - 8) * x[k];
  }
  return sum;
}

}  // namespace

void matmul_f32(const MatmulArgs& args) noexcept { matmul_float<float>(args); }
void matmul_bf16(const MatmulArgs& args) noexcept { matmul_float<std::uint16_t>(args); }

void matmul_int8(const MatmulArgs& args) noexcept {
  const std::uint32_t groups = (args.weights.inputs + kInt8Group - 1) / kInt8Group;
  for_each_tile(args, [&](const std::byte* panel, std::uint32_t row, Accumulators& accumulators) {
    const std::size_t first = std::size_t{row} * groups;
    for (std::uint32_t g = 0; g < groups; ++g, panel += kInt8GroupBytes) {
      const std::int8_t* x = args.x_quantized.values + (first + g) * kInt8Group;
      float scales[kPanelOutputs];
      std::memcpy(scales, panel + kPanelOutputs * kInt8Group, sizeof(scales));
      for (std::uint32_t lane = 0; lane < kPanelOutputs; ++lane) {
        const float scale = args.x_quantized.scales[first + g] * scales[lane];
        accumulators[lane] =
            std::fma(static_cast<float>(group_dot(panel, lane, x)), scale, accumulators[lane]);
      }
    }
  });
}

void matmul_int4(const MatmulArgs& args) noexcept {
  const std::uint32_t pairs = (args.weights.inputs + kInt8Group - 1) / kInt8Group;
  for_each_tile(args, [&](const std::byte* panel, std::uint32_t row, Accumulators& accumulators) {
    const std::size_t first = std::size_t{row} * pairs;
    for (std::uint32_t g = 0; g < pairs; ++g, panel += kInt4PairBytes) {
      const std::int8_t* x = args.x_quantized.values + (first + g) * kInt8Group;
      std::uint16_t scales[2][kPanelOutputs];
      std::memcpy(scales, panel + 2 * kInt4GroupBytes, sizeof(scales));
      for (std::uint32_t lane = 0; lane < kPanelOutputs; ++lane) {
        const std::int32_t dot0 = int4_group_dot(panel, lane, x);
        const std::int32_t dot1 = int4_group_dot(panel + kInt4GroupBytes, lane, x + kInt4Group);
        const float both = std::fma(static_cast<float>(dot1), bf16_to_f32(scales[1][lane]),
                                    static_cast<float>(dot0) * bf16_to_f32(scales[0][lane]));
        accumulators[lane] = std::fma(both, args.x_quantized.scales[first + g], accumulators[lane]);
      }
    }
  });
}

void quantize_rows(const float* x, std::size_t x_stride, std::uint32_t rows, std::uint32_t inputs,
                   const QuantizedRows& out, std::uint32_t out_row) noexcept {
  const std::uint32_t groups = (inputs + kInt8Group - 1) / kInt8Group;
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (std::uint32_t g = 0; g < groups; ++g) {
      const std::size_t at = (std::size_t{out_row} + row) * groups + g;
      const std::uint32_t count = std::min(kInt8Group, inputs - g * kInt8Group);
      std::int8_t* values = out.values + at * kInt8Group;
      out.scales[at] = quantize_int8_group(x + row * x_stride + g * kInt8Group, count, values);
      std::fill(values + count, values + kInt8Group, std::int8_t{0});
      std::int32_t sums[2] = {};  // of each half
      for (std::uint32_t k = 0; k < count; ++k) sums[k / kInt4Group] += values[k];
      out.offsets[at] = -128 * (sums[0] + sums[1]);
      for (std::size_t half = 0; half < 2; ++half) out.half_offsets[2 * at + half] = -8 * sums[half];
    }
  }
}

}  // namespace colibri::kernels::scalar
