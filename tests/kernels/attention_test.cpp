// Attention over paged keys and values against brute force in double precision, and every
// variant against the scalar one.
#include <algorithm>
#include <limits>

#include "tests/kernels/kernel_testing.hpp"
#include "tests/support/test_scale.hpp"

namespace colibri::kernels::testing {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  std::uint32_t heads, kv_heads, head_dim;
};

// Keys and values of `positions` positions, as rows and in shuffled pages. Slots that no
// position has filled hold NaN: reading one shows in the output.
struct Cache {
  KvFormat format;
  Shape shape;
  std::vector<float> keys, values;  // [positions, kv_heads, head_dim], before rounding
  std::vector<std::uint32_t> pages;
  std::size_t page_stride;
  Bytes memory;

  Cache(KvFormat format, Shape shape, std::uint32_t positions, std::uint32_t seed, float scale = 1.0F)
      : format(format), shape(shape) {
    Random random(seed);
    const std::size_t row = std::size_t{shape.kv_heads} * shape.head_dim;
    keys = random.normals(positions * row, scale);
    values = random.normals(positions * row, scale);
    pages.resize((positions + 15) / 16);
    for (std::uint32_t p = 0; p < pages.size(); ++p)
      pages[p] = static_cast<std::uint32_t>(pages.size()) - 1 - p;
    page_stride = kv_page_layer_bytes(format, shape.kv_heads, shape.head_dim) + 64;
    memory = aligned_bytes(page_stride * pages.size());
    std::fill_n(memory.get(), page_stride * pages.size(), std::byte{0xff});  // NaN in both formats
    for (std::uint32_t position = 0; position < positions; ++position) store(position);
  }

  void store(std::uint32_t position) {
    const std::size_t row = std::size_t{shape.kv_heads} * shape.head_dim;
    KvStoreArgs args;
    args.format = format;
    args.kv_heads = shape.kv_heads;
    args.head_dim = shape.head_dim;
    args.page = memory.get() + pages[position / 16] * page_stride;
    args.slot = position % 16;
    args.key = keys.data() + position * row;
    args.value = values.data() + position * row;
    best_kernel_table().kv_store(args);
  }

  double rounded(float value) const {
    return format == KvFormat::f32 ? value : bf16_to_f32(f32_to_bf16(value));
  }

  AttentionArgs args(std::uint32_t position, std::uint32_t window, const std::vector<float>& query) const {
    AttentionArgs args;
    args.format = format;
    args.heads = shape.heads;
    args.kv_heads = shape.kv_heads;
    args.head_dim = shape.head_dim;
    args.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
    args.window = window;
    args.position = position;
    args.kv_base = memory.get();
    args.page_stride = page_stride;
    args.pages = pages.data();
    args.query = query.data();
    args.kv_head_end = shape.kv_heads;
    return args;
  }

  std::vector<float> run(const KernelTable& table, std::uint32_t position, std::uint32_t window,
                         const std::vector<float>& query) const {
    std::vector<float> out(query.size(), kNaN);
    AttentionArgs a = args(position, window, query);
    a.out = out.data();
    table.attention(a);
    return out;
  }

  // Rows at `position` and after it, which are further apart than their heads need. query [rows, heads *
  // dim].
  std::vector<float> run_rows(const KernelTable& table, std::uint32_t position, std::uint32_t rows,
                              std::uint32_t window, const std::vector<float>& query) const {
    constexpr std::size_t kGap = 3;
    const std::size_t width = std::size_t{shape.heads} * shape.head_dim;
    std::vector<float> apart((width + kGap) * rows, kNaN), out((width + kGap) * rows, kNaN);
    for (std::size_t i = 0; i < query.size(); ++i) apart[i / width * (width + kGap) + i % width] = query[i];
    AttentionArgs a = args(position, window, apart);
    a.rows = rows;
    a.query_stride = a.out_stride = width + kGap;
    a.out = out.data();
    table.attention(a);
    std::vector<float> packed;
    for (std::size_t row = 0; row < rows; ++row) {
      const auto begin = out.begin() + static_cast<std::ptrdiff_t>(row * (width + kGap));
      packed.insert(packed.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
      for (std::size_t i = 0; i < kGap; ++i) EXPECT_TRUE(std::isnan(out[row * (width + kGap) + width + i]));
    }
    return packed;
  }

  std::vector<double> brute_force(std::uint32_t position, std::uint32_t window,
                                  const std::vector<float>& query) const {
    const std::uint32_t dim = shape.head_dim;
    std::vector<double> out(query.size(), 0.0);
    const std::uint32_t begin = window == 0 || position + 1 < window ? 0 : position + 1 - window;
    for (std::uint32_t h = 0; h < shape.heads; ++h) {
      const std::uint32_t kv = h / (shape.heads / shape.kv_heads);
      std::vector<double> scores;
      for (std::uint32_t p = begin; p <= position; ++p) {
        double score = 0;
        for (std::uint32_t d = 0; d < dim; ++d) {
          score += query[h * dim + d] * rounded(keys[(p * shape.kv_heads + kv) * dim + d]);
        }
        scores.push_back(score / std::sqrt(static_cast<double>(dim)));
      }
      const double max = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - max);
      for (std::uint32_t p = begin; p <= position; ++p) {
        for (std::uint32_t d = 0; d < dim; ++d) {
          out[h * dim + d] += scores[p - begin] / sum * rounded(values[(p * shape.kv_heads + kv) * dim + d]);
        }
      }
    }
    return out;
  }
};

constexpr KvFormat kFormats[] = {KvFormat::f32, KvFormat::bf16};

class AttentionKernel : public VariantTest {};

TEST_P(AttentionKernel, MatchesBruteForceAndScalarForPositionsAndWindows) {
  for (const Shape shape : {Shape{4, 4, 16}, Shape{8, 2, 40}, Shape{7, 1, 8}, Shape{6, 2, 64}}) {
    const std::vector<float> query = Random(2).normals(shape.heads * shape.head_dim, 2.0F);
    for (const KvFormat format : kFormats) {
      const Cache all(format, shape, 101, 31);
      for (std::uint32_t position = 0; position <= 100; ++position) {
        for (const std::uint32_t window : {0U, 1U, 5U, 16U, 33U, 200U}) {
          const std::vector<float> out = all.run(variant(), position, window, query);
          ASSERT_TRUE(all_same(out, all.run(scalar(), position, window, query)))
              << "position " << position << " window " << window << " head_dim " << shape.head_dim;
          if (position % 7 != 2 && position < 90) continue;  // brute force is slow
          const std::vector<double> expected = all.brute_force(position, window, query);
          for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 3e-6);
        }
      }
    }
  }
}

TEST_P(AttentionKernel, AgreesForEveryHeadSizeAndGroup) {
  for (const KvFormat format : kFormats) {
    for (std::uint32_t head_dim = 1; head_dim <= 72; ++head_dim) {
      const Shape shape{(1 + head_dim % 9) * 2, 2, head_dim};
      const std::vector<float> query = Random(head_dim).normals(shape.heads * head_dim);
      const Cache cache(format, shape, 75, head_dim);
      ASSERT_TRUE(all_same(cache.run(variant(), 74, 0, query), cache.run(scalar(), 74, 0, query)))
          << head_dim;
    }
    const Shape large{16, 2, 256};
    const std::vector<float> query = Random(9).normals(large.heads * large.head_dim);
    const Cache cache(format, large, 300, 9);
    ASSERT_TRUE(all_same(cache.run(variant(), 299, 0, query), cache.run(scalar(), 299, 0, query)));
    ASSERT_TRUE(all_same(cache.run(variant(), 299, 130, query), cache.run(scalar(), 299, 130, query)));
  }
}

TEST_P(AttentionKernel, SlotsOutsideTheRangeAreNeverUsed) {
  const Shape shape{4, 2, 24};
  const std::vector<float> query = Random(4).normals(shape.heads * shape.head_dim);
  for (const KvFormat format : kFormats) {
    for (std::uint32_t position = 0; position < 40; ++position) {
      const Cache cut(format, shape, position + 1, 8);  // the rest of the last page is NaN
      for (const float value : cut.run(variant(), position, 0, query))
        ASSERT_TRUE(std::isfinite(value)) << position;
    }
  }
}

TEST_P(AttentionKernel, HeadsAloneOrTogetherGiveTheSameBits) {
  const Shape shape{15, 3, 33};
  const std::vector<float> query = Random(6).normals(shape.heads * shape.head_dim);
  for (const KvFormat format : kFormats) {
    const Cache cache(format, shape, 90, 12);
    const std::vector<float> together = cache.run(variant(), 89, 0, query);
    std::vector<float> apart(together.size(), kNaN);
    for (std::uint32_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      AttentionArgs a = cache.args(89, 0, query);
      a.out = apart.data();
      a.kv_head_begin = kv_head;
      a.kv_head_end = kv_head + 1;
      variant().attention(a);
      const std::size_t done = (kv_head + 1) * 5 * shape.head_dim;
      for (std::size_t i = done; i < apart.size(); ++i) ASSERT_TRUE(std::isnan(apart[i]));
    }
    EXPECT_TRUE(all_same(together, apart));
    // A head whose group has one member: the same keys, another register tile.
    const Cache single(format, {3, 3, 33}, 90, 12);
    std::vector<float> first_heads;
    for (std::uint32_t kv_head = 0; kv_head < 3; ++kv_head) {
      const float* head = query.data() + kv_head * 5 * 33;
      first_heads.insert(first_heads.end(), head, head + 33);
    }
    const std::vector<float> out = single.run(variant(), 89, 0, first_heads);
    for (std::uint32_t i = 0; i < out.size(); ++i)
      ASSERT_TRUE(same(out[i], together[i / 33 * 5 * 33 + i % 33]));
  }
}

std::vector<float> row_of(const std::vector<float>& rows, std::size_t row, std::size_t width) {
  const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(row * width);
  return {begin, begin + static_cast<std::ptrdiff_t>(width)};
}

// Rows that go together are computed in tiles, and cross pages, blocks and windows at different rows of a
// tile.
TEST_P(AttentionKernel, RowsTogetherOrAloneGiveTheSameBits) {
  constexpr std::uint32_t kMostRows = 257, kContext = 400;
  const std::uint32_t step = colibri::testing::test_scale() < 1 ? 3 : 1;
  for (const Shape shape : {Shape{1, 1, 20}, Shape{6, 2, 16}, Shape{7, 1, 8}}) {
    const std::size_t width = std::size_t{shape.heads} * shape.head_dim;
    const std::vector<float> query = Random(3).normals(kContext * width, 2.0F);  // of each position
    for (const KvFormat format : kFormats) {
      const Cache cache(format, shape, kContext, 41);
      for (const std::uint32_t window : {0U, 1U, 7U, 64U, 100U}) {
        std::vector<std::vector<float>> alone;
        for (std::uint32_t position = 0; position < kContext; ++position)
          alone.push_back(cache.run(variant(), position, window, row_of(query, position, width)));
        for (std::uint32_t rows = 1; rows <= kMostRows; rows += rows < 70 ? step : 17) {
          const std::uint32_t position = rows * 37 % (kContext - rows + 1);
          const auto first = query.begin() + static_cast<std::ptrdiff_t>(position * width);
          const std::vector<float> together = cache.run_rows(
              variant(), position, rows, window, {first, first + static_cast<std::ptrdiff_t>(rows * width)});
          for (std::uint32_t row = 0; row < rows; ++row) {
            ASSERT_TRUE(all_same(row_of(together, row, width), alone[position + row]))
                << rows << " rows from " << position << ", row " << row << " window " << window;
          }
        }
      }
    }
  }
}

TEST_P(AttentionKernel, RowsMatchBruteForce) {
  for (const Shape shape : {Shape{2, 2, 48}, Shape{9, 3, 24}}) {
    const std::size_t width = std::size_t{shape.heads} * shape.head_dim;
    for (const KvFormat format : kFormats) {
      const Cache cache(format, shape, 300, 51);
      for (const std::uint32_t rows : {1U, 2U, 5U, 6U, 13U, 48U, 49U, 257U}) {
        const std::vector<float> query = Random(rows).normals(rows * width);
        for (const std::uint32_t position : {0U, 11U, 43U}) {
          for (const std::uint32_t window : {0U, 3U, 70U}) {
            const std::vector<float> out = cache.run_rows(variant(), position, rows, window, query);
            for (std::uint32_t row = 0; row<rows; row += rows> 20 ? 9 : 1) {
              const std::vector<double> expected =
                  cache.brute_force(position + row, window, row_of(query, row, width));
              for (std::size_t i = 0; i < width; ++i)
                ASSERT_NEAR(out[row * width + i], expected[i], 3e-6) << rows << " rows, row " << row;
            }
          }
        }
      }
    }
  }
}

TEST_P(AttentionKernel, LongContextsStayNearBruteForce) {
  const Shape shape{4, 2, 32};
  constexpr std::uint32_t kRows = 20, kContext = 6000;
  const std::size_t width = std::size_t{shape.heads} * shape.head_dim;
  const std::vector<float> query = Random(61).normals(kRows * width, 3.0F);
  for (const KvFormat format : kFormats) {
    const Cache cache(format, shape, kContext, 62);
    for (const std::uint32_t window : {0U, 4096U}) {
      const std::vector<float> out = cache.run_rows(variant(), kContext - kRows, kRows, window, query);
      ASSERT_TRUE(all_same(out, cache.run_rows(scalar(), kContext - kRows, kRows, window, query)));
      for (const std::uint32_t row : {0U, kRows - 1}) {
        const std::vector<double> expected =
            cache.brute_force(kContext - kRows + row, window, row_of(query, row, width));
        for (std::size_t i = 0; i < width; ++i) ASSERT_NEAR(out[row * width + i], expected[i], 5e-6);
      }
    }
  }
}

TEST_P(AttentionKernel, SlotsThatOnlyLaterRowsSeeDoNotReachEarlierOnes) {
  const Shape shape{4, 2, 24};
  const std::size_t width = std::size_t{shape.heads} * shape.head_dim;
  constexpr std::uint32_t kRows = 40, kFirst = 50, kBad = 70;  // position kBad holds NaN
  const std::vector<float> query = Random(71).normals(kRows * width);
  Cache cache(KvFormat::f32, shape, kFirst + kRows, 72);
  std::fill_n(cache.keys.begin() + kBad * 2 * 24, 2 * 24, kNaN);
  std::fill_n(cache.values.begin() + kBad * 2 * 24, 2 * 24, kNaN);
  cache.store(kBad);
  for (const std::uint32_t window : {0U, 12U}) {
    const std::vector<float> out = cache.run_rows(variant(), kFirst, kRows, window, query);
    for (std::uint32_t row = 0; row < kRows; ++row) {
      const std::uint32_t position = kFirst + row;
      const bool sees = position >= kBad && (window == 0 || position - kBad < window);
      for (const float value : row_of(out, row, width)) ASSERT_EQ(std::isnan(value), sees) << row;
    }
  }
}

TEST_P(AttentionKernel, ExtremeScoresAgree) {
  const Shape shape{6, 2, 20};
  for (const float scale : {1e-30F, 30.0F, 1e4F, 1e19F, 3e38F}) {
    for (const KvFormat format : kFormats) {
      const std::vector<float> query = Random(14).normals(shape.heads * shape.head_dim, scale);
      const Cache cache(format, shape, 70, 15, scale);
      for (const std::uint32_t position : {0U, 15U, 16U, 69U}) {
        const std::vector<float> out = cache.run(variant(), position, 0, query);
        ASSERT_TRUE(all_same(out, cache.run(scalar(), position, 0, query))) << scale << " " << position;
        if (scale > 1e4F) continue;
        for (const float value : out) ASSERT_TRUE(std::isfinite(value)) << scale;
      }
    }
  }
}

TEST_P(AttentionKernel, NaNInAVisibleKeyReachesTheOutputOfItsHeads) {
  const Shape shape{4, 2, 16};
  Cache cache(KvFormat::f32, shape, 40, 21);
  cache.keys[(20 * 2 + 1) * 16 + 3] = kNaN;  // position 20, kv head 1
  cache.store(20);
  const std::vector<float> query = Random(22).normals(shape.heads * shape.head_dim);
  const std::vector<float> out = cache.run(variant(), 39, 0, query);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i >= 2 * 16);
  for (const float value : cache.run(variant(), 39, 10, query)) EXPECT_TRUE(std::isfinite(value));
  EXPECT_TRUE(all_same(out, cache.run(scalar(), 39, 0, query)));
}

INSTANTIATE_TEST_SUITE_P(Variants, AttentionKernel, every_variant(), variant_name);

}  // namespace
}  // namespace colibri::kernels::testing
