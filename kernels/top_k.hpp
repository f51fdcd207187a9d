// The largest of a list: what routing picks.
#pragma once

#include <cstdint>

namespace colibri::kernels {

// best, ids [k]: the k <= n largest of values [n] and their places, best first, ties to the lower place. The
// list begins with the first k values whatever they are, so that it is full even if values compare as
// unordered. k of 1, 2, 4 and 8 have code of their own, with the same result.
void top_k(const float* values, std::uint32_t n, std::uint32_t k, float* best, std::uint32_t* ids) noexcept;
// The same for any k with the list in memory: the reference.
void top_k_of_any_length(const float* values, std::uint32_t n, std::uint32_t k, float* best,
                         std::uint32_t* ids) noexcept;

}  // namespace colibri::kernels
