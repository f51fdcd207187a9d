// GuessBook and VisitCensus against plain counting over random picks; SweepForecast against its rows, one by
// one.
#include "stages/guess_book.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "stages/sweep_forecast.hpp"
#include "stages/visit_census.hpp"

namespace colibri::testing {
namespace {

constexpr std::uint32_t kExperts = 12, kPicks = 3, kLayers = 5, kWaves = 2, kRows = 7;

// A plan of five MoE layers, steps of two waves.
class GuessTest : public ::testing::Test {
 protected:
  GuessTest() {
    spec.num_experts = kExperts;
    spec.num_experts_per_token = kPicks;
    spec.layers.assign(kLayers, LayerSpec{.moe = true});
    plan.spec = &spec;
    plan.max_rows = kWaves * kRows;
    plan.wave_rows = kRows;
    plan.in_flight = 2;
  }

  HintBatch batch(std::uint64_t serial, std::uint32_t wave, std::uint32_t layer) {
    picks.resize(std::size_t{kRows} * kPicks);
    for (std::size_t row = 0; row < kRows; ++row) draw(picks.data() + row * kPicks, true);
    HintBatch made;
    made.step_serial = serial;
    made.step_slot = static_cast<std::uint32_t>(serial % 2);
    made.wave = wave;
    made.layer = layer;
    made.rows = wave == 0 ? kRows : kRows - 2;
    made.picks = picks.data();
    return made;
  }
  // Distinct experts, skewed towards low ids.
  void draw(std::uint32_t* out, bool ascending) {
    std::set<std::uint32_t> chosen;
    std::vector<std::uint32_t> order;
    while (order.size() < kPicks) {
      const std::uint32_t one = std::min(random() % kExperts, random() % kExperts);
      if (chosen.insert(one).second) order.push_back(one);
    }
    if (ascending) std::sort(order.begin(), order.end());
    std::copy(order.begin(), order.end(), out);
  }

  ModelSpec spec;
  PlanInputs plan;
  std::vector<std::uint32_t> picks;
  std::mt19937 random{7};
};

TEST_F(GuessTest, SharesAreThoseOfPlainCounting) {
  constexpr std::uint32_t kDepth = 2;
  MemoryCursor measure;
  GuessBook book;
  book.lay_out(measure, plan, kDepth);
  std::vector<std::byte> bytes(measure.used() + 64);
  MemoryCursor memory(
      std::span<std::byte>(bytes).subspan(64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64));
  book.lay_out(memory, plan, kDepth);
  book.reset(plan, kDepth);
  // [ordinal, distance, rank] -> named, right; guesses by (serial, wave, ordinal, distance).
  std::map<std::array<std::uint32_t, 3>, std::pair<double, double>> shares;
  std::map<std::array<std::uint64_t, 4>, std::vector<std::uint32_t>> guesses;
  for (std::uint64_t serial = 0; serial < 40; ++serial) {
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      for (std::uint32_t wave = 0; wave < kWaves; ++wave) {
        const HintBatch now = batch(serial, wave, layer);
        book.settle(now, layer);
        for (std::uint32_t distance = 1; distance <= std::min(kDepth, layer); ++distance) {
          const auto& guessed = guesses.at({serial, wave, layer, distance});
          for (std::size_t i = 0; i < std::size_t{now.rows} * kPicks; ++i) {
            if (guessed[i] == kExperts) continue;
            const auto row = now.picks + i / kPicks * kPicks;
            auto& [named, right] = shares[{layer, distance, static_cast<std::uint32_t>(i % kPicks)}];
            named += 1;
            right += std::count(row, row + kPicks, guessed[i]) > 0 ? 1 : 0;
          }
        }
        for (std::uint32_t distance = 1; distance <= kDepth && layer + distance < kLayers; ++distance) {
          std::vector<std::uint32_t> guess(std::size_t{kRows} * kPicks);
          for (std::size_t row = 0; row < kRows; ++row) draw(guess.data() + row * kPicks, false);
          guess[0] = kExperts;  // a row without a guess
          std::copy_n(guess.begin(), std::size_t{now.rows} * kPicks, book.note(now, layer, distance));
          guesses[{serial, wave, layer + distance, distance}] = guess;
        }
      }
    }
  }
  std::map<std::uint32_t, std::pair<double, double>> totals;
  for (const auto& [at, count] : shares) {
    // 32 guesses of the prior: 0.76 one layer ahead, 0.68 two.
    const double prior = at[1] == 1 ? 0.76 : 0.68;
    EXPECT_NEAR(book.precision(at[0], at[1], at[2]), (count.second + 32 * prior) / (count.first + 32), 1e-5);
    totals[at[1]].first += count.first;
    totals[at[1]].second += count.second;
  }
  for (const auto& [distance, total] : totals) {
    EXPECT_EQ(static_cast<double>(book.tally(distance).named), total.first);
    EXPECT_EQ(static_cast<double>(book.tally(distance).right), total.second);
  }
}

TEST_F(GuessTest, CensusFollowsTheVisits) {
  VisitCensus census;
  census.reset(plan);
  EXPECT_EQ(census.touched(0), 0.0F);
  std::vector<double> touched(kLayers), rate(std::size_t{kLayers} * kExperts);
  for (std::uint64_t serial = 0; serial < 20; ++serial) {
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      std::set<std::uint32_t> distinct;
      std::vector<std::uint32_t> picked(kExperts);
      std::uint32_t rows = 0;
      for (std::uint32_t wave = 0; wave < kWaves; ++wave) {
        const HintBatch now = batch(2 * serial, wave, layer);
        for (std::size_t i = 0; i < std::size_t{now.rows} * kPicks; ++i) ++picked[now.picks[i]];
        distinct.insert(now.picks, now.picks + std::size_t{now.rows} * kPicks);
        rows += now.rows;
        census.count(now, layer);
      }
      const double newest = serial == 0 ? 1.0 : 0.25;
      touched[layer] += (static_cast<double>(distinct.size()) / kExperts - touched[layer]) * newest;
      for (std::uint32_t e = 0; e < kExperts; ++e) {
        double& share = rate[layer * kExperts + e];
        share += (static_cast<double>(picked[e]) / rows - share) * newest;
      }
    }
  }
  // The last layer's last visit is still open.
  for (std::uint32_t layer = 0; layer + 1 < kLayers; ++layer) {
    EXPECT_NEAR(census.touched(layer), touched[layer], 1e-5);
    for (std::uint32_t e = 0; e < kExperts; ++e) {
      EXPECT_NEAR(census.rate(layer, e), rate[layer * kExperts + e], 1e-5);
    }
  }
}

TEST_F(GuessTest, ForecastCountsGuessedRowsAndTheOthers) {
  SweepForecast forecast;
  forecast.reset(plan);
  const float rate = 0.1F;
  EXPECT_NEAR(forecast.probability(0, 4, 2, 3, rate, 1), 0.1, 1e-6) << "of one row that is all there is";
  EXPECT_NEAR(forecast.probability(0, 4, 2, 3, rate, 100), 1 - std::pow(0.9, 50.5), 1e-6);

  std::vector<float> miss(kExperts, 1.0F);
  miss[3] = 0.25F;
  forecast.add(0, 4, 2, 7, 0.8F, miss);
  forecast.add(0, 4, 2, 7, 0.6F, miss);
  EXPECT_EQ(forecast.rows(0, 4, 2), 14U);
  // 0.8 of seven and 0.6 of seven rows have told what they pick: of 20 rows as good as 9.8.
  const double others = std::pow(0.9, 20 - 9.8);
  const double together = 0.5 + 0.5 / 20;
  EXPECT_NEAR(forecast.probability(0, 4, 2, 3, rate, 20), 1 - std::pow(0.25 * 0.25 * others, together), 1e-5);
  EXPECT_NEAR(forecast.probability(0, 4, 2, 5, rate, 20), 1 - std::pow(others, together), 1e-5);
  EXPECT_NEAR(forecast.probability(0, 4, 2, 5, 0.0F, 20), 0, 1e-6) << "nobody picks it";

  // Another layer, step or place is another story.
  EXPECT_EQ(forecast.rows(0, 4, 3) + forecast.rows(0, 6, 2) + forecast.rows(1, 4, 2), 0U);
  forecast.add(0, 4, 3, 7, 0.8F, miss);
  EXPECT_EQ(forecast.rows(0, 4, 3), 7U);
  EXPECT_EQ(forecast.rows(0, 4, 2), 0U);
}

}  // namespace
}  // namespace colibri::testing
