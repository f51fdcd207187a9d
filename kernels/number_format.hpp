// Number formats that weights are stored in, and conversions of single values.
//
// Weights live in panels of kPanelOutputs output channels (see packed_matrix.hpp);
// activations are float32 and, for integer weights, quantised on the fly.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "kernels/export.hpp"

namespace colibri::kernels {

enum class WeightFormat : std::uint8_t {
  f32 = 0,       // IEEE binary32
  bf16 = 1,      // upper half of a binary32
  int8_g64 = 2,  // symmetric int8, one f32 scale per output and 64 inputs
  int4_g32 = 3,  // symmetric int4, one bf16 scale per output and 32 inputs
};
inline constexpr int kWeightFormats = 4;

// Whether products with such weights take quantised rows of activations.
constexpr bool has_integer_weights(WeightFormat format) noexcept {
  return format == WeightFormat::int8_g64 || format == WeightFormat::int4_g32;
}

// "f32", "bf16", "int8_g64", "int4_g32"
COLIBRI_API std::string_view weight_format_name(WeightFormat format) noexcept;
// False when `name` is none of the above; `format` is then unchanged.
COLIBRI_API bool parse_weight_format(std::string_view name, WeightFormat& format) noexcept;

// Inputs that share one scale. Activations have the groups of int8 for both formats.
inline constexpr std::uint32_t kInt8Group = 64;
inline constexpr std::uint32_t kInt4Group = 32;

// Round to nearest, ties to even; NaN stays NaN.
inline std::uint16_t f32_to_bf16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

inline float bf16_to_f32(std::uint16_t value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

// IEEE binary16 to binary32, subnormals, infinities and NaN included.
COLIBRI_API float f16_to_f32(std::uint16_t value) noexcept;

}  // namespace colibri::kernels
