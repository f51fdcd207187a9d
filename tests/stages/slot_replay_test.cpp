// Replayed policies against plain lists, exhaustive search and what theory says of cycles.
#include "stages/slot_replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <set>

#include "stages/slot_table.hpp"

namespace colibri::testing {
namespace {

// Every layer in turn, each visit with its own random experts; low ids are likelier.
std::vector<ReplayVisit> random_trace(std::uint32_t layers, std::uint32_t experts, std::uint32_t a_visit,
                                      std::uint32_t steps, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<ReplayVisit> visits;
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      std::set<std::uint32_t> distinct;
      while (distinct.size() < a_visit)
        distinct.insert(std::min({random() % experts, random() % experts, random() % experts}));
      visits.push_back({layer, {distinct.begin(), distinct.end()}});
    }
  }
  return visits;
}

std::vector<std::uint32_t> flat(const std::vector<ReplayVisit>& visits, std::uint32_t experts) {
  std::vector<std::uint32_t> records;
  for (const ReplayVisit& visit : visits) {
    for (const std::uint32_t expert : visit.experts) records.push_back(visit.layer * experts + expert);
  }
  return records;
}

// The most hits that any decision at each miss can give: all of them are tried.
std::uint64_t most_hits(const std::vector<std::uint32_t>& records, std::uint32_t slots, std::size_t at,
                        const std::set<std::uint32_t>& kept,
                        std::map<std::pair<std::size_t, std::set<std::uint32_t>>, std::uint64_t>& known) {
  if (at == records.size()) return 0;
  if (const auto found = known.find({at, kept}); found != known.end()) return found->second;
  std::uint64_t best = 0;
  if (kept.contains(records[at])) {
    best = 1 + most_hits(records, slots, at + 1, kept, known);
  } else {
    best = most_hits(records, slots, at + 1, kept, known);
    std::set<std::uint32_t> with = kept;
    with.insert(records[at]);
    if (with.size() <= slots) best = std::max(best, most_hits(records, slots, at + 1, with, known));
    for (const std::uint32_t victim : kept) {
      std::set<std::uint32_t> instead = with;
      instead.erase(victim);
      best = std::max(best, most_hits(records, slots, at + 1, instead, known));
    }
  }
  return known[{at, kept}] = best;
}

TEST(SlotReplay, BeladyIsWhatTryingEverythingFinds) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const auto visits = random_trace(2, 5, 2, 5, seed);
    for (const std::uint32_t slots : {1U, 2U, 3U}) {
      std::map<std::pair<std::size_t, std::set<std::uint32_t>>, std::uint64_t> known;
      EXPECT_EQ(replay_slots(visits, {2, 5, slots}, SlotPolicy::belady_bypass).hits,
                most_hits(flat(visits, 5), slots, 0, {}, known))
          << "seed " << seed << " slots " << slots;
    }
  }
}

TEST(SlotReplay, LruIsAPlainList) {
  const auto visits = random_trace(3, 16, 4, 40, 5);
  for (const std::uint32_t slots : {1U, 7U, 20U, 48U}) {
    std::list<std::uint32_t> recent;
    std::uint64_t hits = 0;
    for (const std::uint32_t record : flat(visits, 16)) {
      const auto found = std::find(recent.begin(), recent.end(), record);
      if (found != recent.end()) {
        ++hits;
        recent.erase(found);
      } else if (recent.size() == slots) {
        recent.pop_back();
      }
      recent.push_front(record);
    }
    EXPECT_EQ(replay_slots(visits, {3, 16, slots}, SlotPolicy::lru).hits, hits);
  }
}

TEST(SlotReplay, ACycleLongerThanTheSlotsDefeatsLruAndNotTheOthers) {
  // Every layer demands the same four records at every visit: 32 records in a cycle, 16 slots.
  std::vector<ReplayVisit> visits;
  for (int step = 0; step < 50; ++step) {
    for (std::uint32_t layer = 0; layer < 8; ++layer) visits.push_back({layer, {0, 1, 2, 3}});
  }
  auto rate = [&](SlotPolicy policy) { return replay_slots(visits, {8, 4, 16}, policy).hit_rate(); };
  EXPECT_EQ(rate(SlotPolicy::lru), 0.0);
  // What is kept is read once; a slot of 16 is never a resident's where a job needs one for transit.
  EXPECT_DOUBLE_EQ(rate(SlotPolicy::fixed), 16 * 49 / (32 * 50.0));
  EXPECT_DOUBLE_EQ(rate(SlotPolicy::pinned), 15 * 49 / (32 * 50.0));
  EXPECT_GT(rate(SlotPolicy::probability), 0.4);
  EXPECT_GE(rate(SlotPolicy::belady_bypass), rate(SlotPolicy::probability));
}

TEST(SlotReplay, NothingBeatsBeladyAndEverythingFitsInEnoughSlots) {
  const auto visits = random_trace(6, 32, 8, 60, 9);
  std::set<std::uint32_t> distinct;
  for (const std::uint32_t record : flat(visits, 32)) distinct.insert(record);
  for (const std::uint32_t slots : {1U, 19U, 48U, 96U, 192U}) {
    const std::uint64_t bound = replay_slots(visits, {6, 32, slots}, SlotPolicy::belady_bypass).hits;
    for (const SlotPolicy policy : kSlotPolicies) {
      const ReplayResult result =
          replay_slots(visits, {6, 32, slots, transit_slots(slots, 192, 1)}, policy);
      EXPECT_LE(result.hits, bound) << slot_policy_name(policy) << " with " << slots;
      if (slots == 192) {
        EXPECT_EQ(result.hits, result.demands - distinct.size()) << slot_policy_name(policy);
      }
    }
  }
  // Skewed use: a quota by probability keeps what a list over all layers forgets.
  EXPECT_GT(replay_slots(visits, {6, 32, 48}, SlotPolicy::probability).hits,
            replay_slots(visits, {6, 32, 48}, SlotPolicy::lru).hits);
}

TEST(SlotReplay, NamesAreFound) {
  for (const SlotPolicy policy : kSlotPolicies) EXPECT_EQ(find_slot_policy(slot_policy_name(policy)), policy);
  EXPECT_FALSE(find_slot_policy("fifo").has_value());
}

}  // namespace
}  // namespace colibri::testing
