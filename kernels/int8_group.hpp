// Symmetric int8 quantisation of one group: the rule shared by packed weights and the
// scalar quantisation of activations (vector variants reproduce it to the bit).
#pragma once

#include <cstdint>

namespace colibri::kernels {

// values [count <= 64] -> quantized [count] and the returned scale.
// scale = max|v| / 127; q = v / scale, clamped to +-127 and rounded to nearest even. The clamp matters
// only where the scale is subnormal and so imprecise. A scale of 0 (all zero, or too small to represent)
// gives q = 0. A NaN or infinity anywhere gives q = 0 and scale NaN: bad input stays visible in the
// output and no undefined conversion happens.
float quantize_int8_group(const float* values, std::uint32_t count, std::int8_t* quantized) noexcept;

}  // namespace colibri::kernels
