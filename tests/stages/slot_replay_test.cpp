// Replayed policies against plain lists, exhaustive search and what theory says of cycles.
#include "stages/slot_replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
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
      const ReplayResult result = replay_slots(visits, {6, 32, slots, transit_slots(slots, 192, {})}, policy);
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

// Visits of every layer in turn; in each, expert e of layer l is used with likelihood(l, e).
template <class Likelihood>
std::vector<ReplayVisit> likely_trace(std::uint32_t layers, std::uint32_t experts, std::uint32_t steps,
                                      Likelihood&& likelihood) {
  std::mt19937_64 random(11);
  std::vector<ReplayVisit> visits;
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      ReplayVisit visit{layer, {}};
      for (std::uint32_t expert = 0; expert < experts; ++expert) {
        if (std::uniform_real_distribution<>()(random) < likelihood(layer, expert))
          visit.experts.push_back(expert);
      }
      visits.push_back(std::move(visit));
    }
  }
  return visits;
}

// The policy `probability` with quotas that never move, in plain sets and counts: a record that is demanded
// takes a free place, or that of the layer's least used one when it was used 5 % more often.
std::uint64_t hits_of_equal_quotas(const std::vector<ReplayVisit>& visits, std::uint32_t layers,
                                   std::uint32_t experts, std::uint32_t places) {
  std::vector<std::set<std::uint32_t>> kept(layers);
  std::vector<std::vector<double>> uses(layers, std::vector<double>(experts));
  std::vector<double> seen(layers);
  std::uint64_t hits = 0;
  for (const ReplayVisit& visit : visits) {
    const std::uint32_t layer = visit.layer;
    if (seen[layer] >= 256) {
      seen[layer] /= 2;
      for (double& count : uses[layer]) count /= 2;
    }
    ++seen[layer];
    for (const std::uint32_t expert : visit.experts) {
      ++uses[layer][expert];
      hits += kept[layer].contains(expert) ? 1 : 0;
    }
    auto less_used = [&](std::uint32_t a, std::uint32_t b) {
      return uses[layer][a] != uses[layer][b] ? uses[layer][a] < uses[layer][b] : a > b;
    };
    std::vector<std::uint32_t> ranked = visit.experts;
    std::sort(ranked.rbegin(), ranked.rend(), less_used);
    const std::size_t quota = places / layers + (layer < places % layers ? 1 : 0);
    for (const std::uint32_t expert : ranked) {
      if (kept[layer].contains(expert)) continue;
      if (kept[layer].size() == quota) {
        if (quota == 0) break;
        const std::uint32_t worst = *std::min_element(kept[layer].begin(), kept[layer].end(), less_used);
        if (uses[layer][expert] <= 1.05 * uses[layer][worst]) continue;
        kept[layer].erase(worst);
      }
      kept[layer].insert(expert);
    }
  }
  return hits;
}

double moved_over_equal(const std::vector<ReplayVisit>& visits, std::uint32_t layers, std::uint32_t experts,
                        std::uint32_t slots) {
  const std::uint64_t moved = replay_slots(visits, {layers, experts, slots, 1}, SlotPolicy::probability).hits;
  const std::uint64_t equal = hits_of_equal_quotas(visits, layers, experts, slots - 1);
  std::printf("%u slots: %llu hits with quotas that move, %llu with equal ones\n", slots,
              static_cast<unsigned long long>(moved), static_cast<unsigned long long>(equal));
  return static_cast<double>(moved) / static_cast<double>(equal);
}

TEST(SlotReplay, QuotasThatHaveNoReasonToMoveStay) {
  // Too short for a move: what is hit is exactly what equal quotas hit.
  const auto few =
      likely_trace(6, 16, 60, [](auto layer, auto e) { return 1.0 / (1 + (e + 3 * layer) % 16); });
  for (const std::uint32_t slots : {2U, 7U, 25U, 60U}) EXPECT_EQ(moved_over_equal(few, 6, 16, slots), 1.0);
}

TEST(SlotReplay, PlacesGoToTheLayersThatHitMoreWithThem) {
  // Every other layer uses the same four experts always and others hardly ever; the rest use 24 of 32 at
  // every other visit. Equal quotas of 8 waste half of theirs on the former.
  const auto skewed = likely_trace(8, 32, 600, [](std::uint32_t layer, std::uint32_t e) {
    return layer % 2 == 0 ? (e < 4 ? 1.0 : 0.02) : (e < 24 ? 0.5 : 0.02);
  });
  EXPECT_GT(moved_over_equal(skewed, 8, 32, 65), 1.1);
  // Zipf's law, of another exponent in each layer.
  const auto zipf = likely_trace(8, 64, 600, [](std::uint32_t layer, std::uint32_t e) {
    return std::min(1.0, 1.2 / std::pow(1.0 + e, 0.3 + 0.2 * layer));
  });
  for (const std::uint32_t slots : {52U, 129U, 257U}) EXPECT_GT(moved_over_equal(zipf, 8, 64, slots), 1.0);
}

TEST(SlotReplay, LayersThatAreAlikeLoseNothing) {
  for (const double exponent : {0.0, 0.5, 1.0}) {
    const auto alike = likely_trace(8, 32, 600, [exponent](std::uint32_t layer, std::uint32_t e) {
      return 0.9 / std::pow(1.0 + (e * 13 + layer * 5) % 32, exponent);
    });
    for (const std::uint32_t slots : {26U, 65U, 129U}) EXPECT_GT(moved_over_equal(alike, 8, 32, slots), 0.99);
  }
}

// What knows more, or forgets less, hits more.
TEST(SlotReplay, PoliciesAreInTheOrderOfTheory) {
  const std::uint32_t layers = 12, experts = 64;
  const auto zipf = likely_trace(layers, experts, 400, [](std::uint32_t layer, std::uint32_t e) {
    return 0.9 / (1.0 + (e * 29 + layer * 7) % experts);
  });
  for (const double share : {0.1, 0.25, 0.5}) {
    const auto slots = static_cast<std::uint32_t>(share * layers * experts);
    auto rate = [&](SlotPolicy policy) {
      return replay_slots(zipf, {layers, experts, slots, 1}, policy).hit_rate();
    };
    std::printf("%u slots:", slots);
    for (const SlotPolicy policy : kSlotPolicies) {
      std::printf(" %s %.3f", std::string(slot_policy_name(policy)).c_str(), rate(policy));
    }
    std::printf("\n");
    EXPECT_GT(rate(SlotPolicy::belady_bypass), rate(SlotPolicy::fixed));
    EXPECT_GT(rate(SlotPolicy::fixed), rate(SlotPolicy::probability)) << "probability has to learn";
    EXPECT_GT(rate(SlotPolicy::probability), 0.95 * rate(SlotPolicy::fixed));
    EXPECT_GE(rate(SlotPolicy::probability), rate(SlotPolicy::pinned)) << "pinned stops learning";
    EXPECT_GE(rate(SlotPolicy::probability), rate(SlotPolicy::lfu))
        << "lfu lets go of one to take each new one in";
    EXPECT_GT(rate(SlotPolicy::lfu), rate(SlotPolicy::lru));
  }
  // Few slots for a cycle of layers: a list of what was used last holds nothing that comes again.
  EXPECT_LT(replay_slots(zipf, {layers, experts, 32, 1}, SlotPolicy::lru).hit_rate(), 0.01);
  EXPECT_GT(replay_slots(zipf, {layers, experts, 32, 1}, SlotPolicy::probability).hit_rate(), 0.3);
}

TEST(SlotReplay, NamesAreFound) {
  for (const SlotPolicy policy : kSlotPolicies) EXPECT_EQ(find_slot_policy(slot_policy_name(policy)), policy);
  EXPECT_FALSE(find_slot_policy("fifo").has_value());
}

}  // namespace
}  // namespace colibri::testing
