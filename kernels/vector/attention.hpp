// Vector body of attention: a lane is a position of a page for the scores, and a channel
// for the weighted sum of values. A few query heads that share a kv head go together, so
// that keys and values are loaded once for all of them, and a few pages go together, so
// that enough independent sums are under way. The softmax over pages stays in order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.hpp"
#include "kernels/vector/lane_order.hpp"

namespace colibri::kernels {
namespace {

static_assert(kKvPagePositions == kLanes, "a lane is a position of the page");

template <class L, class Element>
struct Attention {
  static constexpr int kMaxPages = L::kAttentionPages;

  static void run(const AttentionArgs& args) noexcept {
    const std::uint32_t group = args.heads / args.kv_heads;
    for (std::uint32_t kv_head = args.kv_head_begin; kv_head < args.kv_head_end; ++kv_head) {
      heads<L::kAttentionHeads>(args, kv_head, kv_head * group, (kv_head + 1) * group);
    }
  }

 private:
  // The positions first .. last of one page, by their place in it.
  struct PageView {
    const Element* keys;    // [head_dim][16]
    const Element* values;  // [16][head_dim]
    std::uint32_t first, last;
  };

  // What is known of kHeads heads so far; the weighted sums themselves are in args.out.
  template <int kHeads>
  struct State {
    const float* query;  // [kHeads, head_dim]
    float* out;          // [kHeads, head_dim]
    float max[kHeads];
    L sums[kHeads];
  };

  // Of the pages that go together.
  template <int kHeads>
  struct Weights {
    float corrections[kMaxPages][kHeads];
    alignas(64) float values[kMaxPages][kHeads][kLanes];
  };

  template <int kHeads>
  static void heads(const AttentionArgs& args, std::uint32_t kv_head, std::uint32_t begin,
                    std::uint32_t end) {
    for (; end - begin >= kHeads; begin += kHeads) attend<kHeads>(args, kv_head, begin);
    if constexpr (kHeads > 1) heads<kHeads / 2>(args, kv_head, begin, end);
  }

  template <int kHeads>
  static void attend(const AttentionArgs& args, std::uint32_t kv_head, std::uint32_t head) {
    const std::uint32_t begin =
        args.window == 0 || args.position < args.window ? 0 : args.position - args.window + 1;
    State<kHeads> state;
    state.query = args.query + std::size_t{head} * args.head_dim;
    state.out = args.out + std::size_t{head} * args.head_dim;
    for (int h = 0; h < kHeads; ++h) {
      state.max[h] = -__builtin_inff();
      state.sums[h] = L::zero();
    }
    for (std::size_t i = 0; i < std::size_t{kHeads} * args.head_dim; ++i) state.out[i] = 0.0F;

    std::uint32_t page = begin / kLanes;
    const std::uint32_t last_page = args.position / kLanes;
    for (; page + kMaxPages <= last_page + 1; page += kMaxPages)
      pages<kHeads, kMaxPages>(args, kv_head, page, begin, state);
    for (; page <= last_page; ++page) pages<kHeads, 1>(args, kv_head, page, begin, state);

    for (int h = 0; h < kHeads; ++h) {
      const L sum = L::all(sum_lanes(state.sums[h]));
      float* out = state.out + std::size_t(h) * args.head_dim;
      std::uint32_t d = 0;
      for (; d + kLanes <= args.head_dim; d += kLanes) L::div(L::load(out + d), sum).store(out + d);
      if (const std::uint32_t rest = args.head_dim - d; rest != 0) {
        L::div(L::load_first(out + d, rest), sum).store_first(out + d, rest);
      }
    }
  }

  static PageView view(const AttentionArgs& args, std::uint32_t kv_head, std::uint32_t page,
                       std::uint32_t begin) {
    const std::size_t head_elements = std::size_t{kKvPagePositions} * args.head_dim;  // of one kv head
    const std::byte* base = args.kv_base + args.pages[page] * args.page_stride;
    const std::uint32_t start = page * kKvPagePositions;
    const std::uint32_t end = args.position - start;
    PageView view;
    view.keys = reinterpret_cast<const Element*>(base) + kv_head * head_elements;
    view.values = view.keys + args.kv_heads * head_elements;
    view.first = begin > start ? begin - start : 0;
    view.last = end < kLanes ? end : kLanes - 1;
    return view;
  }

  // kPages pages in order.
  template <int kHeads, int kPages>
  static void pages(const AttentionArgs& args, std::uint32_t kv_head, std::uint32_t page, std::uint32_t begin,
                    State<kHeads>& state) {
    PageView views[kPages];
    for (int n = 0; n < kPages; ++n)
      views[n] = view(args, kv_head, page + static_cast<std::uint32_t>(n), begin);
    L scores[kPages][kHeads];
    dot_products(args, views, state.query, scores);

    Weights<kHeads> weights;
    for (int n = 0; n < kPages; ++n) {
      for (int h = 0; h < kHeads; ++h) {
        const L score = L::mul(scores[n][h], L::all(args.scale));
        weights.corrections[n][h] =
            softmax(views[n], score, state.max[h], state.sums[h], weights.values[n][h]);
      }
    }
    std::uint32_t d = 0;
    constexpr std::uint32_t kChannels = L::kAttentionVectors * kLanes;
    for (; d + kChannels <= args.head_dim; d += kChannels) {
      add_values<L::kAttentionVectors>(args, views, weights, state.out, d, kLanes);
    }
    for (; d + kLanes <= args.head_dim; d += kLanes)
      add_values<1>(args, views, weights, state.out, d, kLanes);
    if (d < args.head_dim) add_values<1>(args, views, weights, state.out, d, args.head_dim - d);
  }

  template <int kHeads, int kPages>
  [[gnu::always_inline]] static void dot_products(const AttentionArgs& args, const PageView (&views)[kPages],
                                                  const float* query, L (&scores)[kPages][kHeads]) {
    L sums[kPages][kHeads];
#pragma GCC unroll 16
    for (int n = 0; n < kPages; ++n) {
#pragma GCC unroll 16
      for (int h = 0; h < kHeads; ++h) sums[n][h] = L::zero();
    }
    const std::size_t head_dim = args.head_dim;
    for (std::size_t d = 0; d < head_dim; ++d) {
      L q[kHeads];
#pragma GCC unroll 16
      for (int h = 0; h < kHeads; ++h) q[h] = L::all(query[h * head_dim + d]);
#pragma GCC unroll 16
      for (int n = 0; n < kPages; ++n) {
        const L key = L::load(views[n].keys + d * kLanes);
#pragma GCC unroll 16
        for (int h = 0; h < kHeads; ++h) sums[n][h] = L::fma(q[h], key, sums[n][h]);
      }
    }
#pragma GCC unroll 16
    for (int n = 0; n < kPages; ++n) {
#pragma GCC unroll 16
      for (int h = 0; h < kHeads; ++h) scores[n][h] = sums[n][h];
    }
  }

  // One step of the online softmax; returns the factor for what was there before. NaN scores do not
  // take part in the maximum and come out as NaN weights, and so do scores at an infinite maximum: then
  // everything is NaN from here on, whatever the factor.
  static float softmax(const PageView& view, L score, float& max, L& sums, float* weights) {
    const L lowest = L::all(-__builtin_inff());
    const auto valid = L::mask((2U << view.last) - (1U << view.first));
    const float page_max = largest_lane(L::larger(L::select(valid, score, lowest), lowest));
    float correction = 1.0F;  // what the exponential gives when the maximum stays
    if (page_max > max) {
      alignas(64) float lanes[kLanes];
      exp_lanes(L::all(max - page_max)).store(lanes);
      correction = lanes[0];
      max = page_max;
    }
    const L weight = L::select(valid, exp_lanes(L::sub(score, L::all(max))), L::zero());
    sums = L::fma(sums, L::all(correction), weight);
    weight.store(weights);
    return correction;
  }

  // out[h][d ..] of kVectors vectors (the last lanes beyond `lanes` left alone), over all pages.
  template <int kVectors, int kHeads, int kPages>
  [[gnu::always_inline]] static void add_values(const AttentionArgs& args, const PageView (&views)[kPages],
                                                const Weights<kHeads>& weights, float* out, std::uint32_t d,
                                                std::uint32_t lanes) {
    L sums[kHeads][kVectors];
#pragma GCC unroll 16
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[h][v] = load(out + h * args.head_dim + d + v * kLanes, lanes);
    }
    for (int n = 0; n < kPages; ++n) {
#pragma GCC unroll 16
      for (int h = 0; h < kHeads; ++h) {
        const L correction = L::all(weights.corrections[n][h]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[h][v] = L::mul(sums[h][v], correction);
      }
      const Element* row = views[n].values + std::size_t{views[n].first} * args.head_dim + d;
      for (std::uint32_t p = views[n].first; p <= views[n].last; ++p, row += args.head_dim) {
        L value[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) value[v] = load(row + v * kLanes, lanes);
#pragma GCC unroll 16
        for (int h = 0; h < kHeads; ++h) {
          const L weight = L::all(weights.values[n][h][p]);
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) sums[h][v] = L::fma(weight, value[v], sums[h][v]);
        }
      }
    }
#pragma GCC unroll 16
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        float* at = out + h * args.head_dim + d + v * kLanes;
        lanes == kLanes ? sums[h][v].store(at) : sums[h][v].store_first(at, lanes);
      }
    }
  }

  template <class T>
  [[gnu::always_inline]] static L load(const T* p, std::uint32_t lanes) {
    return lanes == kLanes ? L::load(p) : L::load_first(p, lanes);
  }
};

}  // namespace
}  // namespace colibri::kernels
