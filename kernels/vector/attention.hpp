// Vector body of attention. A query is one head of one row. Queries that share a kv head,
// which are the heads of a group and rows that follow each other, go together: in register
// tiles, so that a vector of keys or values is loaded once for all of a tile, and in sets of
// tiles, which take first the keys and then the values of a block of positions one after the
// other, while those are in the first-level cache. A lane is a position of a page for the
// scores, and a channel for the weighted sum of values.
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
  static void run(const AttentionArgs& args) noexcept {
    const std::size_t queries = std::size_t{args.rows} * (args.heads / args.kv_heads);
    const std::size_t sets = (queries + kSetQueries - 1) / kSetQueries;
    for (std::uint32_t kv_head = args.kv_head_begin; kv_head < args.kv_head_end; ++kv_head) {
      for (std::size_t n = 0; n < sets; ++n) {
        const std::size_t begin = queries * n / sets;
        attend(args, kv_head, begin, static_cast<std::uint32_t>(queries * (n + 1) / sets - begin));
      }
    }
  }

 private:
  static constexpr std::uint32_t kTileQueries = L::kAttentionQueries;
  static constexpr std::uint32_t kSetQueries = 8 * kTileQueries;
  static constexpr std::uint32_t kBlockPages = kAttentionBlock / kKvPagePositions;
  static constexpr int kSecondLevel = 2;  // as __builtin_prefetch counts: not into the first-level cache

  struct Query {
    const float* query;         // [head_dim]
    float* out;                 // [head_dim] the weighted sum so far
    std::uint32_t begin, last;  // the positions that it sees; neither falls from one query to the next
    float max;
    L sums;
  };

  // What a set has to do with one block. Positions count from the start of the block.
  struct Block {
    const Element* keys[kBlockPages];    // [head_dim][16], of pages that the set sees
    const Element* values[kBlockPages];  // [16][head_dim]
    const Element* ahead[kBlockPages];   // keys of the next block, or of this one
    std::uint32_t tile, tiles;           // the one at work, and how many share the fetching ahead
    std::uint32_t first[kSetQueries];  // what each query sees: first .. end - 1, nothing when they are equal
    std::uint32_t end[kSetQueries];
    alignas(64) float weights[kSetQueries][kAttentionBlock];                      // scores before
    alignas(64) float corrections[(kSetQueries + kLanes - 1) / kLanes * kLanes];  // of what is in the sums
  };

  // The most of `limit` vectors for each of `queries` queries, a power of two, that there are registers for.
  static constexpr std::uint32_t vectors_for(std::uint32_t queries, std::uint32_t limit) {
    while (limit > 1 && queries * limit > L::kTileAccumulators) limit /= 2;
    return limit;
  }

  // The queries begin, begin + 1, ... of one kv head; the heads of a row are next to each other.
  static void attend(const AttentionArgs& args, std::uint32_t kv_head, std::size_t begin,
                     std::uint32_t count) {
    const std::uint32_t group = args.heads / args.kv_heads;
    Query queries[kSetQueries];
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::size_t row = (begin + i) / group;
      const std::size_t head = std::size_t{kv_head} * group + (begin + i) % group;
      Query& query = queries[i];
      query.query = args.query + row * args.query_stride + head * args.head_dim;
      query.out = args.out + row * args.out_stride + head * args.head_dim;
      query.last = args.position + static_cast<std::uint32_t>(row);
      query.begin = args.window == 0 || query.last < args.window ? 0 : query.last - args.window + 1;
      query.max = -__builtin_inff();
      query.sums = L::zero();
      for (std::uint32_t d = 0; d < args.head_dim; ++d) query.out[d] = 0.0F;
    }
    Block block;
    for (std::uint32_t i = 0; i < sizeof(block.corrections) / sizeof(float); ++i) block.corrections[i] = 0.0F;
    const std::uint32_t last_block = queries[count - 1].last / kAttentionBlock;
    for (std::uint32_t index = queries[0].begin / kAttentionBlock; index <= last_block; ++index) {
      lay_out(args, kv_head, index, queries, count, block);
      for_tiles(count, block, [&]<std::uint32_t kQueries>(std::uint32_t at) {
        const std::uint32_t page = block.first[at] / kLanes;
        const std::uint32_t end = (block.end[at + kQueries - 1] + kLanes - 1) / kLanes;
        scores<kQueries, vectors_for(kQueries, kBlockPages)>(args.head_dim, queries, at, page, end, block);
      });
      softmax(args.scale, queries, count, block);
      for_tiles(count, block, [&]<std::uint32_t kQueries>(std::uint32_t at) {
        if (block.first[at] == block.end[at + kQueries - 1]) return;
        constexpr std::uint32_t kVectors = vectors_for(kQueries, L::kAttentionVectors);
        weighted_sums<kQueries, kVectors>(args.head_dim, queries, at, block, 0);
      });
    }
    for (std::uint32_t i = 0; i < count; ++i) divide(queries[i], args.head_dim);
  }

  static void lay_out(const AttentionArgs& args, std::uint32_t kv_head, std::uint32_t index,
                      const Query* queries, std::uint32_t count, Block& block) {
    const std::uint32_t start = index * kAttentionBlock;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Query& query = queries[i];
      const std::uint32_t first = query.begin > start ? query.begin - start : 0;
      const std::uint32_t end = query.last < start                     ? 0
                                : query.last - start < kAttentionBlock ? query.last - start + 1
                                                                       : kAttentionBlock;
      block.end[i] = end;
      block.first[i] = first < end ? first : end;
    }
    const std::size_t head_elements = std::size_t{kKvPagePositions} * args.head_dim;  // of one kv head
    const auto keys_of = [&](std::uint32_t page) {
      const std::byte* base = args.kv_base + args.pages[page] * args.page_stride;
      return reinterpret_cast<const Element*>(base) + kv_head * head_elements;
    };
    const std::uint32_t last_page = queries[count - 1].last / kLanes;
    for (std::uint32_t n = 0; n < kBlockPages; ++n) {
      const std::uint32_t page = start / kLanes + n;
      if (page > last_page) break;
      block.keys[n] = keys_of(page);
      block.values[n] = block.keys[n] + args.kv_heads * head_elements;
      block.ahead[n] = page + kBlockPages <= last_page ? keys_of(page + kBlockPages) : block.keys[n];
    }
  }

  // Calls compute<queries>(first query) for each tile. Queries are dealt out evenly: seven are four and
  // three, not six and one.
  template <class Compute>
  static void for_tiles(std::uint32_t count, Block& block, Compute compute) {
    const std::uint32_t tiles = (count + kTileQueries - 1) / kTileQueries;
    block.tiles = tiles;
    for (std::uint32_t tile = 0, at = 0; tile < tiles; ++tile) {
      const std::uint32_t size = count / tiles + (tile < count % tiles ? 1 : 0);
      block.tile = tile;
      dispatch<kTileQueries>(size, at, compute);
      at += size;
    }
  }
  template <std::uint32_t kQueries, class Compute>
  static void dispatch(std::uint32_t size, std::uint32_t at, Compute& compute) {
    if (size == kQueries) return compute.template operator()<kQueries>(at);
    if constexpr (kQueries > 1) dispatch<kQueries - 1>(size, at, compute);
  }

  // Scores, not scaled yet, of the pages page .. end - 1.
  template <std::uint32_t kQueries, std::uint32_t kPages>
  [[gnu::noinline]] static void scores(std::size_t head_dim, const Query* queries, std::uint32_t at,
                                       std::uint32_t page, std::uint32_t end, Block& block) {
    for (; page + kPages <= end; page += kPages) {
      dot_products<kQueries, kPages>(head_dim, queries, at, page, block);
    }
    if constexpr (kPages > 1) {
      if (page < end) scores<kQueries, kPages - 1>(head_dim, queries, at, page, end, block);
    }
  }

  template <std::uint32_t kQueries, std::uint32_t kPages>
  [[gnu::always_inline]] static void dot_products(std::size_t head_dim, const Query* queries,
                                                  std::uint32_t at, std::uint32_t page, Block& block) {
    const float* query[kQueries];
    const Element* keys[kPages];
    const Element* values[kPages];
    L sums[kQueries][kPages];
#pragma GCC unroll 16
    for (std::uint32_t n = 0; n < kPages; ++n) {
      keys[n] = block.keys[page + n];
      values[n] = block.values[page + n];
    }
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < kQueries; ++i) {
      query[i] = queries[at + i].query;
#pragma GCC unroll 16
      for (std::uint32_t n = 0; n < kPages; ++n) sums[i][n] = L::zero();
    }
    std::uint32_t until = block.tile + 1;
    for (std::size_t d = 0; d < head_dim; ++d) {
      L key[kPages];
#pragma GCC unroll 16
      for (std::uint32_t n = 0; n < kPages; ++n) key[n] = L::load(keys[n] + d * kLanes);
      if (--until == 0) {
        until = block.tiles;
#pragma GCC unroll 16
        for (std::uint32_t n = 0; n < kPages; ++n) {
          __builtin_prefetch(values[n] + d * kLanes, 0, kSecondLevel);
        }
      }
#pragma GCC unroll 16
      for (std::uint32_t i = 0; i < kQueries; ++i) {
        const L q = L::all(query[i][d]);
#pragma GCC unroll 16
        for (std::uint32_t n = 0; n < kPages; ++n) sums[i][n] = L::fma(q, key[n], sums[i][n]);
      }
    }
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
      for (std::uint32_t n = 0; n < kPages; ++n)
        sums[i][n].store(block.weights[at + i] + (page + n) * kLanes);
    }
  }

  // One step of the online softmax: scores become weights. NaN scores do not take part in the maximum and
  // come out as NaN weights, and so do scores at an infinite maximum: everything is NaN from there on.
  static void softmax(float scale, Query* queries, std::uint32_t count, Block& block) {
    for (std::uint32_t i = 0; i < count; ++i) {
      block.corrections[i] = 0.0F;
      if (block.first[i] == block.end[i]) continue;
      float* weights = block.weights[i];
      L largest = L::all(-__builtin_inff());
      for_pages(block.first[i], block.end[i], [&](std::uint32_t page, auto seen) {
        const L score = L::mul(L::load(weights + page * kLanes), L::all(scale));
        score.store(weights + page * kLanes);
        largest = L::larger(seen(score, L::all(-__builtin_inff())), largest);
      });
      const float block_max = L::largest(largest);
      const float max = block_max > queries[i].max ? block_max : queries[i].max;
      block.corrections[i] = queries[i].max - max;
      queries[i].max = max;
    }
    for (std::uint32_t i = 0; i < count; i += kLanes) {
      exp_lanes(L::load(block.corrections + i)).store(block.corrections + i);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      if (block.first[i] == block.end[i]) continue;
      float* weights = block.weights[i];
      const L max = L::all(queries[i].max);
      L sums = L::mul(queries[i].sums, L::all(block.corrections[i]));
      for_pages(block.first[i], block.end[i], [&](std::uint32_t page, auto seen) {
        const L weight = exp_lanes(L::sub(L::load(weights + page * kLanes), max));
        weight.store(weights + page * kLanes);
        sums = L::add(sums, seen(weight, L::zero()));
      });
      queries[i].sums = sums;
    }
  }

  // Calls compute(page, seen) for the pages of the positions first .. end - 1; seen(a, b) is a in lanes of
  // those positions and b in the others.
  template <class Compute>
  [[gnu::always_inline]] static void for_pages(std::uint32_t first, std::uint32_t end, Compute compute) {
    if (first == 0 && end == kAttentionBlock) {
#pragma GCC unroll 16
      for (std::uint32_t page = 0; page < kBlockPages; ++page) compute(page, [](L a, L) { return a; });
      return;
    }
    for (std::uint32_t page = first / kLanes; page * kLanes < end; ++page) {
      const std::uint32_t start = page * kLanes;
      const std::uint32_t from = first > start ? first - start : 0;
      const std::uint32_t to = end - start < kLanes ? end - start : kLanes;
      const auto mask = L::mask((1U << to) - (1U << from));
      compute(page, [mask](L a, L b) { return L::select(mask, a, b); });
    }
  }

  // out = out * correction + sum of weights * values, the channels d .. in steps of kVectors vectors.
  template <std::uint32_t kQueries, std::uint32_t kVectors>
  [[gnu::noinline]] static void weighted_sums(std::size_t head_dim, const Query* queries, std::uint32_t at,
                                              const Block& block, std::size_t d) {
    for (; d + kVectors * kLanes <= head_dim; d += kVectors * kLanes) {
      add_values<kQueries, kVectors>(head_dim, queries, at, block, d, kLanes);
    }
    if constexpr (kVectors > 1) {
      weighted_sums<kQueries, kVectors / 2>(head_dim, queries, at, block, d);
    } else if (d < head_dim) {
      add_values<kQueries, 1>(head_dim, queries, at, block, d, static_cast<std::uint32_t>(head_dim - d));
    }
  }

  // The channels d .. of kVectors vectors, the last lanes beyond `lanes` left alone. Positions that all
  // queries of the tile see are in the middle: from one row to the next the ends only move by one.
  template <std::uint32_t kQueries, std::uint32_t kVectors>
  [[gnu::always_inline]] static void add_values(std::size_t head_dim, const Query* queries, std::uint32_t at,
                                                const Block& block, std::size_t d, std::uint32_t lanes) {
    const float* weights[kQueries];
    L sums[kQueries][kVectors];
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < kQueries; ++i) {
      weights[i] = block.weights[at + i];
      const L correction = L::all(block.corrections[at + i]);
#pragma GCC unroll 16
      for (std::uint32_t v = 0; v < kVectors; ++v) {
        sums[i][v] = L::mul(load(queries[at + i].out + d + v * kLanes, lanes), correction);
      }
    }
    const std::uint32_t seen_first = block.first[at], seen_end = block.end[at + kQueries - 1];
    std::uint32_t first = block.first[at + kQueries - 1], end = block.end[at];  // seen by all
    if (first >= end) first = end = seen_end;
    if constexpr (kQueries > 1) add_some(head_dim, at, block, d, lanes, seen_first, first, sums);
    std::uint32_t until = block.tile + 1;
    for (std::size_t p = first; p < end;) {
      const std::size_t page = p / kLanes;
      const std::size_t stop = end < (page + 1) * kLanes ? end : (page + 1) * kLanes;
      const Element* row = block.values[page] + p % kLanes * head_dim + d;
      const Element* ahead = block.ahead[page] + p % kLanes * head_dim + d;
      for (; p < stop; ++p, row += head_dim, ahead += head_dim) {
        L value[kVectors];
#pragma GCC unroll 16
        for (std::uint32_t v = 0; v < kVectors; ++v) value[v] = load(row + v * kLanes, lanes);
        if (--until == 0) {
          until = block.tiles;
#pragma GCC unroll 16
          for (std::uint32_t v = 0; v < kVectors; ++v)
            __builtin_prefetch(ahead + v * kLanes, 0, kSecondLevel);
        }
#pragma GCC unroll 16
        for (std::uint32_t i = 0; i < kQueries; ++i) {
          const L weight = L::all(weights[i][p]);
#pragma GCC unroll 16
          for (std::uint32_t v = 0; v < kVectors; ++v) sums[i][v] = L::fma(weight, value[v], sums[i][v]);
        }
      }
    }
    if constexpr (kQueries > 1) add_some(head_dim, at, block, d, lanes, end, seen_end, sums);
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < kQueries; ++i) {
#pragma GCC unroll 16
      for (std::uint32_t v = 0; v < kVectors; ++v) {
        float* out = queries[at + i].out + d + v * kLanes;
        lanes == kLanes ? sums[i][v].store(out) : sums[i][v].store_first(out, lanes);
      }
    }
  }

  // The positions from .. to - 1, each for those queries that see it.
  template <std::uint32_t kQueries, std::uint32_t kVectors>
  [[gnu::always_inline]] static void add_some(std::size_t head_dim, std::uint32_t at, const Block& block,
                                              std::size_t d, std::uint32_t lanes, std::uint32_t from,
                                              std::uint32_t to, L (&sums)[kQueries][kVectors]) {
    for (std::uint32_t p = from; p < to; ++p) {
      const Element* row = block.values[p / kLanes] + p % kLanes * head_dim + d;
#pragma GCC unroll 16
      for (std::uint32_t i = 0; i < kQueries; ++i) {
        if (p < block.first[at + i] || p >= block.end[at + i]) continue;
        const L weight = L::all(block.weights[at + i][p]);
#pragma GCC unroll 16
        for (std::uint32_t v = 0; v < kVectors; ++v) {
          sums[i][v] = L::fma(weight, load(row + v * kLanes, lanes), sums[i][v]);
        }
      }
    }
  }

  static void divide(const Query& query, std::uint32_t head_dim) {
    const L sum = L::all(sum_lanes(query.sums));
    float* out = query.out;
    std::uint32_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) L::div(L::load(out + d), sum).store(out + d);
    if (const std::uint32_t rest = head_dim - d; rest != 0) {
      L::div(L::load_first(out + d, rest), sum).store_first(out + d, rest);
    }
  }

  template <class T>
  [[gnu::always_inline]] static L load(const T* p, std::uint32_t lanes) {
    return lanes == kLanes ? L::load(p) : L::load_first(p, lanes);
  }
};

}  // namespace
}  // namespace colibri::kernels
