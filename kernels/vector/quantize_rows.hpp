// Vector body of the quantisation of activations: splits rows into groups of 64 and leaves
// the group to Group::quantize(const float x[64], int8 values[64]) -> scale of the
// instruction set. The rule is that of int8_group.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.hpp"

namespace colibri::kernels {
namespace {

template <class Group>
inline void quantize_groups(const float* x, std::size_t x_stride, std::uint32_t rows, std::uint32_t inputs,
                            const QuantizedRows& out, std::uint32_t out_row) {
  const std::uint32_t groups = (inputs + kInt8Group - 1) / kInt8Group;
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (std::uint32_t g = 0; g < groups; ++g) {
      const float* source = x + row * x_stride + std::size_t{g} * kInt8Group;
      const std::uint32_t left = inputs - g * kInt8Group;
      float padded[kInt8Group] = {};
      if (left < kInt8Group) {
        for (std::uint32_t k = 0; k < left; ++k) padded[k] = source[k];
        source = padded;
      }
      const std::size_t at = (std::size_t{out_row} + row) * groups + g;
      std::int8_t* values = out.values + at * kInt8Group;
      out.scales[at] = Group::quantize(source, values);
      std::int32_t first = 0, second = 0;  // sums of the halves
      for (std::uint32_t k = 0; k < kInt4Group; ++k) first += values[k];
      for (std::uint32_t k = kInt4Group; k < kInt8Group; ++k) second += values[k];
      out.offsets[at] = -128 * (first + second);
      out.half_offsets[2 * at] = -8 * first;
      out.half_offsets[2 * at + 1] = -8 * second;
    }
  }
}

}  // namespace
}  // namespace colibri::kernels
