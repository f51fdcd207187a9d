// Constants of the one exponential. Every variant evaluates, with fused operations:
//   t = fma(x, log2e, magic): rounds x * log2e to an integer n, kept in the low bits of t
//   r = x - n * ln2, in two steps; p(r) by Horner's rule; y = fma(r * r, p, r) + 1
//   the result is y with n added to its exponent field
// The polynomial is that of Cephes expf (S. Moshier, netlib.org/cephes). Inside the bounds n is
// -126 .. 128 and the exponent field cannot overflow: n is 128 only with y < 1.
#pragma once

namespace colibri::kernels {

inline constexpr float kExpLow = -87.3F;  // below: 0
inline constexpr float kExpHigh = 88.7F;  // above: infinity
inline constexpr float kLog2E = 1.44269504088896341F;
inline constexpr float kExpMagic = 12582912.0F;  // 1.5 * 2^23
inline constexpr float kLn2High = 0.693359375F;  // few bits: n * kLn2High is exact
inline constexpr float kLn2Low = -2.12194440e-4F;
inline constexpr float kExp5 = 1.9875691500e-4F;
inline constexpr float kExp4 = 1.3981999507e-3F;
inline constexpr float kExp3 = 8.3334519073e-3F;
inline constexpr float kExp2 = 4.1665795894e-2F;
inline constexpr float kExp1 = 1.6666665459e-1F;
inline constexpr float kExp0 = 5.0000001201e-1F;

}  // namespace colibri::kernels
