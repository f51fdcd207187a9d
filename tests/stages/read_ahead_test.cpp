// ReadAhead: which hints are read first, and what a sweep may read for nothing.
#include "stages/read_ahead.hpp"

#include <gtest/gtest.h>

#include <random>

namespace colibri::testing {
namespace {

using Time = HintGate::Time;

constexpr std::uint32_t kLayers = 2, kExperts = 64, kSlots = 16;

// Visits of layer 0 and 1 in turn, each told of in advance by hints that come true as often as they say.
class ReadAheadTest : public ::testing::Test {
 protected:
  void take(std::uint64_t step, std::uint32_t ordinal, bool sweep, const std::vector<float>& probabilities) {
    std::vector<float> copy = probabilities;
    std::vector<std::uint32_t> experts(copy.size());
    for (std::uint32_t i = 0; i < experts.size(); ++i) experts[i] = i;
    HintTarget target;
    target.sweep = sweep;
    target.expert_count = static_cast<std::uint32_t>(experts.size());
    target.experts = experts.data();
    target.probabilities = copy.data();
    ahead.take(target, ordinal, visits.key_of(step, ordinal), owned, table, visits);
  }
  std::vector<std::uint32_t> all_records() {
    std::vector<std::uint32_t> records;
    while (const auto hint = ahead.next(table, visits, Time(0))) records.push_back(hint->record);
    return records;
  }
  // A drive that has time for everything.
  void let_time_not_count() {
    Time now(1000);
    for (int i = 0; i < 4; ++i) {
      ahead.gate().visit_begins(now);
      for (const std::uint32_t slot : {0U, 1U}) ahead.gate().submitted(slot, true, now);
      now += Time(10);
      for (const std::uint32_t slot : {0U, 1U}) ahead.gate().ended(slot, true, now);
      now += Time(100'000);
    }
  }

  std::vector<std::uint8_t> owned = std::vector<std::uint8_t>(kExperts, 1);
  VisitProgress visits{1, kLayers, std::size_t{kLayers} * kExperts};
  SlotTable table{{.layers = kLayers, .experts = kExperts, .owned = kExperts, .slots = kSlots, .transit = 8}};
  ReadAhead ahead{std::size_t{kLayers} * kExperts, kSlots};
};

TEST_F(ReadAheadTest, NearestVisitFirstThenLikeliest) {
  let_time_not_count();
  take(0, 1, false, {0.9F, 0.99F});
  take(0, 0, false, {0.2F, 0.1F, 0.3F});
  owned[1] = 0;
  take(0, 0, false, {0.0F, 0.9F});
  EXPECT_EQ(all_records(), (std::vector<std::uint32_t>{2, 0, 1, kExperts + 1, kExperts}));
}

TEST_F(ReadAheadTest, ASweepReplacesWhatWasSaidOfTheVisit) {
  let_time_not_count();
  for (int i = 0; i < 10'000; ++i) ahead.read();
  take(0, 0, true, {0.9F, 0.8F, 0.7F});
  take(0, 1, true, {0.9F});
  take(0, 0, true, {0.6F, 0.95F});
  EXPECT_EQ(all_records(), (std::vector<std::uint32_t>{1, 0, kExperts}));
}

TEST_F(ReadAheadTest, SweepsReadLittleForNothing) {
  let_time_not_count();
  std::mt19937 random(4);
  std::uniform_real_distribution<float> chance(0.0F, 1.0F);
  for (const bool sweep : {true, false}) {
    ahead = ReadAhead(std::size_t{kLayers} * kExperts, kSlots);
    let_time_not_count();
    std::uint64_t reads = 0, wasted = 0, certain = 0, certain_hints = 0;
    for (std::uint64_t step = 0; step < 400; ++step) {
      // Half of them are all but certain, the others anything.
      std::vector<float> named(10);
      for (std::size_t i = 0; i < named.size(); ++i) named[i] = i % 2 == 0 ? 1.0F : chance(random);
      take(step, 0, sweep, named);
      for (std::uint32_t slot = 0; slot < named.size(); ++slot) {
        const auto hint = ahead.next(table, visits, Time(0));
        if (!hint) break;
        ahead.begin(slot, *hint);
        ahead.read();
        ++reads;
        certain_hints += hint->probability == 1.0F ? 1 : 0;
        if (chance(random) < hint->probability) {
          ahead.leased(slot, true);
        } else {
          ahead.passed(slot);
          ahead.wasted(slot);
          ++wasted;
        }
      }
      certain += named.size() / 2;
      visits.begin(0, visits.key_of(step, 0));
      visits.complete(0, visits.key_of(step, 0));
      ahead.forget_passed(visits);
    }
    EXPECT_EQ(certain_hints, certain);
    const double share = static_cast<double>(wasted) / static_cast<double>(reads);
    if (sweep) {
      EXPECT_LE(share, 0.01);
      EXPECT_GT(reads, certain) << "some of the others, too";
    } else {
      EXPECT_GT(share, 0.15) << "time alone counts";
    }
    visits = VisitProgress(1, kLayers, std::size_t{kLayers} * kExperts);
  }
}

}  // namespace
}  // namespace colibri::testing
