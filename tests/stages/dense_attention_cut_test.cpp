// The tiles of attention cover every row and head once, in pieces that the kernel takes, and none has
// much more than its share of the keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "stages/attention_cut.hpp"

namespace colibri::testing {
namespace {

// A step whose rows are runs of `rows` positions from `position` on, one for each sequence.
struct Rows {
  struct Run {
    std::uint32_t position, rows;
  };

  explicit Rows(const std::vector<Run>& runs) : sequences(runs.size()) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      for (std::uint32_t row = 0; row < runs[i].rows; ++row) {
        of_row.push_back(&sequences[i]);
        positions.push_back(runs[i].position + row);
      }
    }
    step.sequences = of_row.data();
    step.positions = positions.data();
    step.rows = static_cast<std::uint32_t>(positions.size());
  }

  Wave wave(std::uint32_t begin, std::uint32_t end) {
    Wave wave;
    wave.step = &step;
    wave.row_begin = begin;
    wave.row_end = end;
    return wave;
  }

  std::vector<Sequence> sequences;
  std::vector<Sequence*> of_row;
  std::vector<std::uint32_t> positions;
  Step step;
};

void expect_good_cut(Rows& rows, const Wave& wave, std::uint32_t kv_heads, std::uint32_t window) {
  const AttentionCut cut(wave, kv_heads, window);
  std::uint64_t keys = 0, most_of_a_row = 0;
  const auto keys_of = [&](std::uint32_t row) {
    const std::uint64_t context = rows.positions[row] + std::uint64_t{1};
    return window == 0 ? context : std::min<std::uint64_t>(context, window);
  };
  for (std::uint32_t row = wave.row_begin; row < wave.row_end; ++row) {
    keys += keys_of(row);
    most_of_a_row = std::max(most_of_a_row, keys_of(row));
  }
  EXPECT_EQ(cut.keys(), keys);
  for (const std::size_t tiles : {1U, 2U, 3U, 8U, 31U}) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, int> taken;  // by row and head
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      std::uint64_t work = 0;
      cut.for_pieces(tiles, tile, [&](const AttentionPiece& piece) {
        for (std::uint32_t row = piece.row_begin; row < piece.row_end; ++row) {
          ASSERT_EQ(rows.of_row[row], rows.of_row[piece.row_begin]);
          ASSERT_EQ(rows.positions[row] - rows.positions[piece.row_begin], row - piece.row_begin);
          for (std::uint32_t head = piece.kv_head_begin; head < piece.kv_head_end; ++head) {
            ++taken[{row, head}];
            work += keys_of(row);
          }
        }
      });
      EXPECT_LE(work, keys * kv_heads / tiles + most_of_a_row + 1) << tile << " of " << tiles;
    }
    ASSERT_EQ(taken.size(), std::size_t{wave.rows()} * kv_heads);
    for (const auto& [place, times] : taken) {
      ASSERT_EQ(times, 1) << "row " << place.first << " head " << place.second << " of " << tiles;
    }
  }
}

TEST(DenseAttentionCut, CoversEveryRowAndHeadOnceInEvenShares) {
  std::mt19937 random(4);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (int round = 0; round < 60; ++round) {
    std::vector<Rows::Run> runs(1 + below(6));
    for (Rows::Run& run : runs) run = {below(3) == 0 ? 0 : below(900), 1 + below(round % 2 == 0 ? 3 : 80)};
    Rows rows(runs);
    const std::uint32_t begin = below(rows.step.rows), end = begin + 1 + below(rows.step.rows - begin);
    for (const std::uint32_t kv_heads : {1U, 2U, 5U}) {
      for (const std::uint32_t window : {0U, 1U, 20U})
        expect_good_cut(rows, rows.wave(begin, end), kv_heads, window);
    }
  }
}

TEST(DenseAttentionCut, OneLongSequenceAmongShortOnesIsShared) {
  std::vector<Rows::Run> runs(40, {3, 1});
  runs[7] = {100000, 1};
  runs[8] = {0, 300};
  Rows rows(runs);
  expect_good_cut(rows, rows.wave(0, rows.step.rows), 16, 0);
}

TEST(DenseAttentionCut, RowsThatSkipPositionsAreApart) {
  Rows rows({{0, 9}});
  for (std::uint32_t row = 5; row < 9; ++row) rows.positions[row] += 2;
  expect_good_cut(rows, rows.wave(0, 9), 2, 0);
}

}  // namespace
}  // namespace colibri::testing
