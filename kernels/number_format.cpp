// Names of weight formats and the widening of binary16.
#include "kernels/number_format.hpp"

#include <array>

namespace colibri::kernels {
namespace {

// In the order of the enumeration.
constexpr std::array<std::string_view, kWeightFormats> kFormatNames = {"f32", "bf16", "int8_g64", "int4_g32"};

}  // namespace

std::string_view weight_format_name(WeightFormat format) noexcept {
  return kFormatNames[static_cast<std::size_t>(format)];
}

bool parse_weight_format(std::string_view name, WeightFormat& format) noexcept {
  for (std::size_t i = 0; i < kFormatNames.size(); ++i) {
    if (kFormatNames[i] != name) continue;
    format = static_cast<WeightFormat>(i);
    return true;
  }
  return false;
}

float f16_to_f32(std::uint16_t value) noexcept {
  const std::uint32_t sign = (value & 0x8000U) << 16;
  const std::uint32_t exponent = (value >> 10) & 0x1fU;
  const std::uint32_t mantissa = value & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Subnormal or zero: mantissa * 2^-24 is exact in binary32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

}  // namespace colibri::kernels
