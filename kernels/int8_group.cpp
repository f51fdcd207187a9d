// The reference rule of int8 quantisation. The magnitude is taken on the bits, where NaN
// and infinity compare above every finite number, so one integer maximum finds both the
// scale and bad input, in any order.
#include "kernels/int8_group.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace colibri::kernels {

float quantize_int8_group(const float* values, std::uint32_t count, std::int8_t* quantized) noexcept {
  constexpr std::uint32_t kInfinityBits = 0x7f800000U;
  std::uint32_t largest = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU);
  }
  const bool finite = largest < kInfinityBits;
  const float scale =
      finite ? std::bit_cast<float>(largest) / 127.0F : std::numeric_limits<float>::quiet_NaN();
  if (!finite || scale == 0.0F) {
    std::fill_n(quantized, count, std::int8_t{0});
    return scale;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const float clamped = std::clamp(values[i] / scale, -127.0F, 127.0F);
    quantized[i] = static_cast<std::int8_t>(std::nearbyint(clamped));
  }
  return scale;
}

}  // namespace colibri::kernels
