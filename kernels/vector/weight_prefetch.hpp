// A single row does so much with each byte of the weights that the processor does not see far enough ahead on
// its own. What lies beyond the last panel is never touched.
#pragma once

#include <cstddef>
#include <cstdint>

// In an unnamed namespace: each variant is compiled with flags of its own.
namespace colibri::kernels {
namespace {

// Fetches the kBytes that lie kAhead after `weights`.
template <std::uint32_t kBytes, std::uint32_t kAhead>
[[gnu::always_inline]] inline void prefetch_weights(const std::byte* weights) {
  constexpr std::uint32_t kLine = 64;
  constexpr int kAllLevels = 3;  // as __builtin_prefetch counts
#pragma GCC unroll 32
  for (std::uint32_t at = 0; at < kBytes; at += kLine)
    __builtin_prefetch(weights + kAhead + at, 0, kAllLevels);
}

}  // namespace
}  // namespace colibri::kernels
