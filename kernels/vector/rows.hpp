// Vector bodies of the kernels over one row. A last partial vector is loaded and stored by
// its first lanes only; sums keep the other lanes as they are, so that even the sign of a
// zero is that of the scalar reference.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.hpp"
#include "kernels/vector/lane_order.hpp"

namespace colibri::kernels {
namespace {

template <class L>
struct RowKernels {
  static float dot(const float* x, const float* y, std::size_t n) noexcept {
    return reduce(n, L::zero(),
                  [&](std::size_t i, auto load, L sum) { return L::fma(load(x + i), load(y + i), sum); });
  }

  static void rms_norm(const float* x, const float* weight, float eps, std::uint32_t n, float* y) noexcept {
    const float mean = dot(x, x, n) / static_cast<float>(n);
    const L inverse = L::all(1.0F / __builtin_sqrtf(mean + eps));
    map(n, y,
        [&](std::size_t i, auto load) { return L::mul(L::mul(load(x + i), inverse), load(weight + i)); });
  }

  static void silu_multiply(const float* gate, const float* up, std::size_t n, float* out) noexcept {
    const L sign = L::all(-0.0F);
    map(n, out, [&](std::size_t i, auto load) {
      const L g = load(gate + i);
      const L e = exp_lanes(L::sub(sign, g));
      return L::mul(L::div(g, L::add(L::all(1.0F), e)), load(up + i));
    });
  }

  static void rope(float* head, const float* cosines, const float* sines, std::uint32_t half,
                   RopePairing pairing) noexcept {
    if (pairing == RopePairing::neighbours) return rope_neighbours(head, cosines, sines, half);
    float* second = head + half;
    std::uint32_t i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const Rotated rotated =
          rotate(L::load(head + i), L::load(second + i), L::load(cosines + i), L::load(sines + i));
      rotated.first.store(head + i);
      rotated.second.store(second + i);
    }
    if (const std::uint32_t rest = half - i; rest != 0) {
      const Rotated rotated = rotate(L::load_first(head + i, rest), L::load_first(second + i, rest),
                                     L::load_first(cosines + i, rest), L::load_first(sines + i, rest));
      rotated.first.store_first(head + i, rest);
      rotated.second.store_first(second + i, rest);
    }
  }

  static void scale_add(float weight, const float* x, std::size_t n, float* out) noexcept {
    map(n, out, [&](std::size_t i, auto load) { return L::fma(L::all(weight), load(x + i), load(out + i)); });
  }

  static void add(const float* x, std::size_t n, float* out) noexcept {
    map(n, out, [&](std::size_t i, auto load) { return L::add(load(out + i), load(x + i)); });
  }

  static float max_value(const float* x, std::size_t n) noexcept {
    bool nan = false;
    const L lanes = reduce_lanes(n, L::all(-__builtin_inff()), [&](std::size_t i, auto load, L largest) {
      const L values = load(x + i);
      nan |= L::any(L::is_nan(values));
      return L::larger(values, largest);
    });
    return nan ? __builtin_nanf("") : largest_lane(lanes);
  }

  static float sum_exp(const float* x, float max, std::size_t n) noexcept {
    return reduce(n, L::zero(), [&](std::size_t i, auto load, L sum) {
      return L::add(sum, exp_lanes(L::sub(load(x + i), L::all(max))));
    });
  }

  static void exp_shifted(const float* x, float max, std::size_t n, float* out) noexcept {
    map(n, out, [&](std::size_t i, auto load) { return exp_lanes(L::sub(load(x + i), L::all(max))); });
  }

  static float exp(float x) noexcept {
    float lanes[kLanes];
    exp_lanes(L::all(x)).store(lanes);
    return lanes[0];
  }

 private:
  struct Rotated {
    L first, second;
  };

  [[gnu::always_inline]] static Rotated rotate(L a, L b, L cosine, L sine) {
    return {L::fms(a, cosine, L::mul(b, sine)), L::fma(b, cosine, L::mul(a, sine))};
  }

  static void rope_neighbours(float* head, const float* cosines, const float* sines,
                              std::uint32_t half) noexcept {
    for (std::uint32_t i = 0; i < half; ++i, head += 2) {
      const float a = head[0];
      const float b = head[1];
      head[0] = __builtin_fmaf(a, cosines[i], -(b * sines[i]));
      head[1] = __builtin_fmaf(b, cosines[i], a * sines[i]);
    }
  }

  // out[i ..] = compute(i, load) for all i < n.
  template <class Compute>
  [[gnu::always_inline]] static void map(std::size_t n, float* out, Compute compute) {
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) compute(i, [](const float* p) { return L::load(p); }).store(out + i);
    if (const std::uint32_t rest = static_cast<std::uint32_t>(n - i); rest != 0) {
      compute(i, [rest](const float* p) { return L::load_first(p, rest); }).store_first(out + i, rest);
    }
  }

  // Sixteen running values: element i updates lane i % 16.
  template <class Update>
  [[gnu::always_inline]] static L reduce_lanes(std::size_t n, L lanes, Update update) {
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      lanes = update(
          i, [](const float* p) { return L::load(p); }, lanes);
    if (const std::uint32_t rest = static_cast<std::uint32_t>(n - i); rest != 0) {
      const L updated = update(
          i, [rest](const float* p) { return L::load_first(p, rest); }, lanes);
      lanes = L::select(L::mask((1U << rest) - 1U), updated, lanes);
    }
    return lanes;
  }

  template <class Update>
  [[gnu::always_inline]] static float reduce(std::size_t n, L start, Update update) {
    return sum_lanes(reduce_lanes(n, start, update));
  }
};

}  // namespace
}  // namespace colibri::kernels
