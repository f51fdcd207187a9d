// Symmetric int4 quantisation of one group of weights.
#pragma once

#include <cstdint>

namespace colibri::kernels {

// values [count <= 32] -> quantized [count] in -8..7 and the returned scale, in bf16.
//
// The extra step on the negative side is used: scales have a sign, so that the value m of the largest
// magnitude can lie there. Of the first guesses d = -m / s, s = 6.5, 7, .. 8.5, with q = round(v / d)
// clamped, the one is taken whose q fit best under the scale that suits them, sum(v q) / sum(q^2): the
// squared error is then sum(v^2) - sum(v q)^2 / sum(q^2). That scale is rounded to bf16, and q is rounded
// again, to nearest even, for what it has become. Over normal weights the squared error is 30 % below
// that of max|v| / 7 and 10 % below that of m / -8.
// A scale of 0 (all zero, or too small to represent) gives q = 0. A NaN or infinity anywhere gives q = 0
// and scale NaN.
std::uint16_t quantize_int4_group(const float* values, std::uint32_t count, std::int8_t* quantized) noexcept;

}  // namespace colibri::kernels
