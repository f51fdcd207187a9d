// Insertion into a sorted list, by far the most of it not done: what lies below a bound that at least as many
// values reach as are wanted is never looked at, and a value finds its place in a list of known length
// without a branch that could be guessed wrong.
#include "kernels/top_k.hpp"

#include <algorithm>
#include <limits>

namespace colibri::kernels {
namespace {

// The list while it is made, best first; in registers.
template <std::uint32_t kLength>
struct List {
  float values[kLength];
  std::uint32_t places[kLength] = {};

  // From the end: what the value beats moves down, until something stays.
  void insert(float value, std::uint32_t place) noexcept {
    bool beats = value > values[kLength - 1];
#pragma GCC unroll 8
    for (std::uint32_t at = kLength - 1; at > 0; --at) {
      const bool beats_next = beats & (value > values[at - 1]);
      values[at] = beats_next ? values[at - 1] : beats ? value : values[at];
      places[at] = beats_next ? places[at - 1] : beats ? place : places[at];
      beats = beats_next;
    }
    values[0] = beats ? value : values[0];
    places[0] = beats ? place : places[0];
  }
};

// The smallest of the maxima of every kLength-th value: at least kLength values reach it. NaN if one is.
template <std::uint32_t kLength>
float bound_of(const float* values, std::uint32_t n) noexcept {
  float maxima[kLength];
  std::copy_n(values, kLength, maxima);
  bool ordered = true;
  for (std::uint32_t i = 0; i < n; ++i) ordered &= values[i] == values[i];
  if (!ordered) return std::numeric_limits<float>::quiet_NaN();
  for (std::uint32_t begin = kLength; begin + kLength <= n; begin += kLength) {
#pragma GCC unroll 8
    for (std::uint32_t lane = 0; lane < kLength; ++lane) {
      const float value = values[begin + lane];
      maxima[lane] = maxima[lane] < value ? value : maxima[lane];
    }
  }
  return *std::min_element(maxima, maxima + kLength);
}

void top_1(const float* values, std::uint32_t n, float* best, std::uint32_t* ids) noexcept {
  float largest = values[0];
  std::uint32_t place = 0;
  for (std::uint32_t id = 1; id < n; ++id) {
    if (!(values[id] > largest)) continue;
    largest = values[id];
    place = id;
  }
  *best = largest;
  *ids = place;
}

template <std::uint32_t kLength>
void top_k_of_length(const float* values, std::uint32_t n, float* best, std::uint32_t* ids) noexcept {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const float bound = bound_of<kLength>(values, n);
  // Unordered values, or some that nothing is below: they would not come into the list.
  if (!(bound > kLowest)) return top_k_of_any_length(values, n, kLength, best, ids);
  List<kLength> list;
  std::fill_n(list.values, kLength, kLowest);  // every one of these is replaced
  constexpr std::uint32_t kBlock = 64;
  for (std::uint32_t begin = 0; begin < n; begin += kBlock) {
    const std::uint32_t end = std::min(begin + kBlock, n);
    std::uint32_t reaching[kBlock];
    std::uint32_t count = 0;
    for (std::uint32_t place = begin; place < end; ++place) {
      reaching[count] = place;
      count += values[place] >= bound ? 1 : 0;
    }
    for (std::uint32_t i = 0; i < count; ++i) list.insert(values[reaching[i]], reaching[i]);
  }
  std::copy_n(list.values, kLength, best);
  std::copy_n(list.places, kLength, ids);
}

}  // namespace

void top_k_of_any_length(const float* values, std::uint32_t n, std::uint32_t k, float* best,
                         std::uint32_t* ids) noexcept {
  std::uint32_t length = 0;
  for (std::uint32_t id = 0; id < n; ++id) {
    const float value = values[id];
    if (length == k && !(value > best[k - 1])) continue;
    std::uint32_t at = length < k ? length++ : k - 1;
    for (; at > 0 && value > best[at - 1]; --at) {
      best[at] = best[at - 1];
      ids[at] = ids[at - 1];
    }
    best[at] = value;
    ids[at] = id;
  }
}

void top_k(const float* values, std::uint32_t n, std::uint32_t k, float* best, std::uint32_t* ids) noexcept {
  switch (k) {
    case 1: return top_1(values, n, best, ids);
    case 2: return top_k_of_length<2>(values, n, best, ids);
    case 4: return top_k_of_length<4>(values, n, best, ids);
    case 8: return top_k_of_length<8>(values, n, best, ids);
    default: return top_k_of_any_length(values, n, k, best, ids);
  }
}

}  // namespace colibri::kernels
