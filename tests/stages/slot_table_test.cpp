// SlotTable: bookkeeping of slots, driven as `fetch` drives it.
#include "stages/slot_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace colibri {
namespace {

// Reads `record` for a demand and ends its lease. False when no slot was free.
bool use_once(SlotTable& table, std::uint32_t record, std::uint64_t visit = 1) {
  const std::uint32_t slot = table.begin_read(record, visit, false);
  if (slot == SlotTable::kNone) return false;
  table.lease(slot, visit);
  table.landed(slot);
  table.release(slot);
  return true;
}

// A whole visit of step 0: what is there is leased, then what is missing is read; returns the hits.
std::uint32_t visit(SlotTable& table, std::uint32_t layer, const std::vector<std::uint32_t>& experts) {
  std::vector<std::uint32_t> leased, missing;
  table.begin_visit(0, layer, 1);
  for (const std::uint32_t expert : experts) {
    const std::uint32_t record = table.record_of(layer, expert);
    table.demanded(0, record);
    const std::uint32_t slot = table.find(record);
    (slot == SlotTable::kNone ? missing : leased).push_back(slot == SlotTable::kNone ? record : slot);
    if (slot != SlotTable::kNone) table.lease(slot, 1);
  }
  table.end_visit(0);
  for (const std::uint32_t record : missing) EXPECT_TRUE(use_once(table, record)) << "waits for ever";
  for (const std::uint32_t slot : leased) table.release(slot);
  return static_cast<std::uint32_t>(leased.size());
}

TEST(SlotTable, HintsThatWaitAndResidentsLeaveASlotForDemands) {
  // Two layers of 32 experts. Hints for the second layer fill all slots but one; then more experts of the
  // first layer are demanded than its quota had left. Nothing gives a slot back before their visit is over.
  SlotTable table({.layers = 2, .experts = 32, .owned = 32, .slots = 25, .transit = 6});
  visit(table, 0, {0, 1, 2, 3});
  for (std::uint32_t expert = 0; table.free_slots() >= 2; ++expert) {
    table.landed(table.begin_read(table.record_of(1, expert), 2, true));
  }
  for (std::uint32_t expert = 4; expert < 32; ++expert) visit(table, 0, {expert});
}

// A record may come back before its visit's last demand is known: until then nobody can say whether it stays.
TEST(SlotTable, WhatAnOpenVisitHadWaitsForItsEnd) {
  SlotTable table({.layers = 1, .experts = 8, .owned = 8, .slots = 3, .transit = 2});
  for (int i = 0; i < 3; ++i) visit(table, 0, {5});
  table.begin_visit(0, 0, 1);
  for (const std::uint32_t record : {1U, 5U}) table.demanded(0, record);
  ASSERT_TRUE(use_once(table, 1));
  EXPECT_EQ(table.free_slots(), 1U);
  EXPECT_NE(table.find(1), SlotTable::kNone);
  table.end_visit(0);
  EXPECT_EQ(table.find(1), SlotTable::kNone) << "less likely than the resident";
  EXPECT_NE(table.find(5), SlotTable::kNone);
}

// A visit that has only demanded it does not keep it: its end may need the slot, when what its later waves
// still wait for in an earlier layer comes after other demands.
TEST(SlotTable, WhatAnOpenVisitWaitsForDoesNotWaitForItsEnd) {
  SlotTable table({.layers = 2, .experts = 8, .owned = 8, .slots = 1, .transit = 1, .steps = 2});
  table.begin_visit(0, 0, 1);
  table.demanded(0, 3);
  const std::uint32_t slot = table.begin_read(3, 1, false);
  table.lease(slot, 1);
  table.landed(slot);
  table.end_visit(0);
  table.begin_visit(1, 0, 2);
  table.demanded(1, 3);  // behind others in the queue of demands
  table.release(slot);
  EXPECT_EQ(table.free_slots(), 1U);
  // Neither does one whose read has failed.
  table.begin_visit(0, 1, 3);
  table.demanded(0, 9);
  table.lease(table.begin_read(9, 3, false), 3);
  table.failed(table.find(9));
  ASSERT_TRUE(use_once(table, 9, 4));
  EXPECT_EQ(table.free_slots(), 1U);
}

TEST(SlotTable, LeasesAheadOfTheirTurnLeaveASlotForDemandsInTheirTurn) {
  SlotTable table({.layers = 2, .experts = 8, .owned = 8, .slots = 3, .transit = 1});
  table.begin_visit(0, 0, 7);
  for (const std::uint32_t record : {0U, 1U, 2U}) table.demanded(0, record);
  table.end_visit(0);
  auto read = [&table](std::uint32_t record, std::uint64_t visit, bool hinted) {
    const std::uint32_t slot = table.begin_read(record, visit, hinted);
    table.landed(slot);
    return slot;
  };
  const std::uint32_t a = read(0, 1, false), b = read(1, 1, false);
  for (const std::uint32_t slot : {a, b}) table.lease(slot, 1);
  const std::uint32_t hint = read(8, 2, true);
  // A hint's slot serves no demand in its turn: its own visit may have it any time, and it still counts then.
  ASSERT_TRUE(table.may_lease_ahead(hint));
  table.lease(hint, 2, true);
  EXPECT_EQ(table.hinted_slots(), 0U);
  ASSERT_TRUE(table.may_lease_ahead(a));
  table.lease(a, 2, true);
  EXPECT_TRUE(table.may_lease_ahead(a));  // once more costs nothing
  EXPECT_FALSE(table.may_lease_ahead(b));
  // With its lease over, b does not stay as a resident either, though its layer is below its quota.
  table.release(b);
  EXPECT_EQ(table.free_slots(), 1U);
  table.release(a);
  EXPECT_EQ(table.free_slots(), 1U);  // the lease ahead is still there
  table.release(a);
  EXPECT_TRUE(table.slot(a).resident);  // one slot is left even so
  const std::uint32_t c = read(2, 1, false);
  table.lease(c, 1);
  EXPECT_FALSE(table.may_lease_ahead(c));
}

// What `fetch` may do, in a random order: demands when a slot is free, hints when two are.
TEST(SlotTable, ASlotIsFreeWheneverNothingIsLeasedOrUndecided) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint32_t layers = 1 + random() % 4;
    const std::uint32_t experts = 2 + random() % 12;
    const std::uint32_t records = layers * experts;
    const std::uint32_t slots = 1 + random() % (records - 1);
    const std::uint32_t transit = 1 + random() % slots;
    const auto policy = seed % 3 == 0 ? ResidentPolicy::pinned : ResidentPolicy::probability;
    SlotTable table({layers, experts, experts, slots, transit, 1, policy});
    std::vector<std::uint32_t> leased, hinted;
    bool open = false;
    std::uint32_t layer = 0;
    std::set<std::uint32_t> demanded;
    for (int turn = 0; turn < 400; ++turn) {
      const std::uint32_t record = random() % records;
      const std::uint32_t present = table.find(record);
      switch (random() % 5) {
        case 0:
          open ? table.end_visit(0) : table.begin_visit(0, layer = random() % layers, 1);
          open = !open;
          demanded.clear();
          break;
        case 1:  // demand
          if (!open || record / experts != layer || !demanded.insert(record).second) break;
          table.demanded(0, record);
          if (present != SlotTable::kNone) {
            std::erase(hinted, present);
            table.lease(present, 2);
            leased.push_back(present);
          } else if (const std::uint32_t slot = table.begin_read(record, 1, false);
                     slot != SlotTable::kNone) {
            table.lease(slot, 1);
            table.landed(slot);
            leased.push_back(slot);
          }
          break;
        case 2:  // hint
          if (present == SlotTable::kNone && table.free_slots() >= 2) {
            hinted.push_back(table.begin_read(record, 2, true));
            table.landed(hinted.back());
          }
          break;
        case 3:  // a lease ends
          if (!leased.empty()) {
            std::swap(leased[random() % leased.size()], leased.back());
            table.release(leased.back());
            leased.pop_back();
          }
          break;
        default:  // a hint's visit has passed
          if (!hinted.empty() && random() % 4 == 0) {
            std::swap(hinted[random() % hinted.size()], hinted.back());
            table.hint_passed(hinted.back());
            hinted.pop_back();
          }
      }
      // Visits end without a slot: then nothing waits for ever.
      if (leased.empty() && !open) {
        ASSERT_GE(table.free_slots(), 1U) << "seed " << seed << ", turn " << turn;
      }
      ASSERT_LE(table.residents(), slots - transit);
    }
  }
}

TEST(SlotTable, WithASlotForEachRecordAllStay) {
  SlotTable table({.layers = 3, .experts = 8, .owned = 8, .slots = 24, .transit = 0});
  for (std::uint32_t layer = 0; layer < 3; ++layer) visit(table, layer, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(table.residents(), 24U);
  for (std::uint32_t record = 0; record < 24; ++record) EXPECT_NE(table.find(record), SlotTable::kNone);
}

// The rules once more, as plain sets and maps; each decision is made here first and then looked up in the
// table.
class Model {
 public:
  Model(const SlotTable::Shape& shape)
      : shape_(shape),
        chosen_(shape.layers),
        uses_(shape.layers * shape.experts),
        visits_(shape.layers),
        ended_(shape.layers) {}

  struct Entry {
    bool landed = false, hinted = false, resident = false;
    std::uint32_t leases = 0;
    std::uint64_t visit = 0;
    bool idle() const { return landed && !hinted && leases == 0; }
  };
  struct OpenVisit {
    std::uint32_t layer = 0;
    std::uint64_t key = 0;
    std::vector<std::uint32_t> records, leased;
  };

  std::uint32_t quota(std::uint32_t layer) const {
    const std::uint32_t shared = shape_.slots - shape_.transit;
    return std::min(shape_.experts, shared / shape_.layers + (layer < shared % shape_.layers ? 1 : 0));
  }
  std::size_t count(bool Entry::*what) const {
    return static_cast<std::size_t>(
        std::count_if(entries.begin(), entries.end(), [what](const auto& one) { return one.second.*what; }));
  }
  double probability(std::uint32_t record) const {
    return uses_[record] / (visits_[record / shape_.experts] + 1);
  }
  void begin_visit(std::uint32_t step, std::uint32_t layer, std::uint64_t key) {
    if (visits_[layer] >= 256) {  // old visits count half
      visits_[layer] /= 2;
      for (std::uint32_t e = 0; e < shape_.experts; ++e) uses_[layer * shape_.experts + e] /= 2;
    }
    visits_[layer] += 1;
    open[step] = {layer, key, {}, {}};
  }
  void demand(std::uint32_t step, std::uint32_t record) {
    open.at(step).records.push_back(record);
    uses_[record] += 1;
  }
  void lease(std::uint32_t record, std::uint64_t key) {
    Entry& entry = entries.at(record);
    ++entry.leases;
    if (entry.visit == key) entry.hinted = false;
    for (auto& [step, visit] : open) {
      if (visit.key == key) visit.leased.push_back(record);
    }
  }
  void end_visit(std::uint32_t step) {
    const OpenVisit visit = open.at(step);
    open.erase(step);
    std::vector<std::uint32_t> dropped, ranked = visit.records;
    std::stable_sort(ranked.begin(), ranked.end());
    std::stable_sort(ranked.begin(), ranked.end(),
                     [this](std::uint32_t a, std::uint32_t b) { return uses_[a] > uses_[b]; });
    for (const std::uint32_t record : ranked) {
      if (const auto other = choose(record)) dropped.push_back(*other);
    }
    ++ended_[visit.layer];
    settle_all(dropped);
    for (const std::uint32_t record : visit.leased) {
      if (entries.contains(record) && entries.at(record).idle()) settle(record);
    }
  }
  // Nothing holds the record any more that was read for a hint.
  void offer(std::uint32_t record) {
    if (!undecided(record)) {
      if (const auto other = choose(record)) settle_all({*other});
    }
    settle(record);
  }
  void settle(std::uint32_t record) {
    Entry& entry = entries.at(record);
    if (entry.resident || entry.hinted || undecided(record)) return;
    const bool full =
        shape_.transit > 0 && count(&Entry::resident) + count(&Entry::hinted) + 1 == shape_.slots;
    if (chosen_[record / shape_.experts].contains(record) && !full) {
      entry.resident = true;
    } else {
      drop(record);
    }
  }
  void drop(std::uint32_t record) {
    entries.erase(record);
    chosen_[record / shape_.experts].erase(record);
  }

  void fail(std::uint32_t record) {
    drop(record);
    for (auto& [step, visit] : open) std::erase(visit.leased, record);
  }

  std::map<std::uint32_t, Entry> entries;   // by record
  std::map<std::uint32_t, OpenVisit> open;  // by step

 private:
  bool undecided(std::uint32_t record) const {
    return std::any_of(open.begin(), open.end(), [record](const auto& one) {
      const std::vector<std::uint32_t>& leased = one.second.leased;
      return std::find(leased.begin(), leased.end(), record) != leased.end();
    });
  }
  // Takes the record in, if it is worth it. Returns what had to go.
  std::optional<std::uint32_t> choose(std::uint32_t record) {
    const std::uint32_t layer = record / shape_.experts;
    std::set<std::uint32_t>& chosen = chosen_[layer];
    if (chosen.contains(record) || quota(layer) == 0) return {};
    if (chosen.size() < quota(layer)) {
      chosen.insert(record);
      return {};
    }
    if (shape_.policy == ResidentPolicy::pinned && ended_[layer] >= 8) return {};
    std::uint32_t worst = *chosen.begin();
    for (const std::uint32_t other : chosen) {
      if (uses_[other] <= uses_[worst]) worst = other;
    }
    if (uses_[record] <= 1.05 * uses_[worst]) return {};
    chosen.erase(worst);
    chosen.insert(record);
    return worst;
  }
  void settle_all(const std::vector<std::uint32_t>& dropped) {
    for (const std::uint32_t record : dropped) {
      if (!entries.contains(record)) continue;
      entries.at(record).resident = false;
      if (entries.at(record).idle()) settle(record);
    }
  }

  SlotTable::Shape shape_;
  std::vector<std::set<std::uint32_t>> chosen_;
  std::vector<double> uses_, visits_;
  std::vector<std::uint32_t> ended_;
};

void expect_same(const SlotTable& table, const Model& model, std::uint32_t records) {
  std::set<std::uint32_t> taken;
  for (std::uint32_t record = 0; record < records; ++record) {
    const std::uint32_t index = table.find(record);
    const auto entry = model.entries.find(record);
    ASSERT_EQ(index != SlotTable::kNone, entry != model.entries.end()) << "record " << record;
    ASSERT_NEAR(table.choice().usage().probability(record), model.probability(record), 1e-5);
    if (index == SlotTable::kNone) continue;
    ASSERT_TRUE(taken.insert(index).second) << "two records in one slot";
    const SlotTable::Slot& slot = table.slot(index);
    ASSERT_EQ(slot.record, record);
    ASSERT_EQ(slot.state == SlotTable::State::landed, entry->second.landed);
    ASSERT_EQ(slot.leases, entry->second.leases);
    ASSERT_EQ(slot.hinted, entry->second.hinted);
    ASSERT_EQ(slot.resident, entry->second.resident);
  }
  ASSERT_EQ(table.free_slots() + taken.size(), table.size());
  ASSERT_EQ(table.residents(), model.count(&Model::Entry::resident));
  ASSERT_EQ(table.hinted_slots(), model.count(&Model::Entry::hinted));
}

// 100,000 random operations over many shapes, each compared with the model in full.
TEST(SlotTable, DoesWhatAModelOfPlainSetsDoes) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&random](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    SlotTable::Shape shape{.layers = 1 + below(4), .experts = 2 + below(8), .steps = 1 + below(2)};
    shape.owned = shape.experts;
    const std::uint32_t records = shape.layers * shape.experts;
    const bool whole = seed % 10 == 0;  // a slot for every record
    shape.slots = whole ? records : 1 + below(records - 1);
    shape.transit = whole ? 0 : 1 + below(shape.slots);
    shape.policy = below(3) == 0 ? ResidentPolicy::pinned : ResidentPolicy::probability;
    SlotTable table(shape);
    Model model(shape);
    for (int operation = 0; operation < 2000; ++operation) {
      // Two of three uses go to a quarter of the records, so that ranks differ.
      const std::uint32_t record = below(3) == 0 ? below(records) : below(records) / 4 * 4;
      const std::uint32_t index = table.find(record);
      const auto found = model.entries.find(record);
      const std::uint64_t visit = 1 + below(3);
      const std::uint32_t step = below(shape.steps);
      switch (below(7)) {
        case 0:
          if (const std::uint32_t layer = below(shape.layers); !model.open.contains(step)) {
            table.begin_visit(step, layer, 1 + step);
            model.begin_visit(step, layer, 1 + step);
          }
          break;
        case 1:
          if (!model.open.contains(step) || below(4) > 0) break;
          table.end_visit(step);
          model.end_visit(step);
          break;
        case 2:  // a hint
          if (found != model.entries.end() || table.free_slots() < 2) break;
          ASSERT_NE(table.begin_read(record, visit, true), SlotTable::kNone);
          model.entries[record] = {.hinted = true, .visit = visit};
          break;
        case 3:  // the end of a read
          if (found == model.entries.end() || found->second.landed) break;
          if (below(5) == 0) {
            table.failed(index);
            model.fail(record);
            break;
          }
          table.landed(index);
          found->second.landed = true;
          if (found->second.idle()) {
            table.hint_passed(index);  // its visit passed meanwhile
            model.offer(record);
          }
          break;
        case 4: {  // a demand
          const auto open = model.open.find(step);
          if (open == model.open.end() || record / shape.experts != open->second.layer ||
              std::count(open->second.records.begin(), open->second.records.end(), record) > 0)
            break;
          table.demanded(step, record);
          model.demand(step, record);
          std::uint32_t slot = index;
          if (found == model.entries.end()) {
            slot = table.begin_read(record, visit, false);
            ASSERT_EQ(slot == SlotTable::kNone, model.entries.size() == shape.slots);
            if (slot == SlotTable::kNone) break;
            model.entries[record] = {.visit = visit};
          }
          const std::uint64_t key = below(4) == 0 ? 9 : 1 + step;  // 9: served after its visit's end
          table.lease(slot, key);
          model.lease(record, key);
          break;
        }
        case 5:
          if (found == model.entries.end() || !found->second.landed || found->second.leases == 0) break;
          table.release(index);
          if (--found->second.leases == 0) model.settle(record);
          break;
        default:
          if (found == model.entries.end() || !found->second.hinted) break;
          table.hint_passed(index);
          found->second.hinted = false;
          if (found->second.idle()) model.offer(record);
      }
      expect_same(table, model, records);
      if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", operation " << operation;
    }
  }
}

// Visits in the order of the layers, over and over; each expert is used with a probability of its own.
class Usage {
 public:
  static constexpr std::uint32_t kLayers = 8, kExperts = 32, kSlots = 32, kTransit = 4, kCycles = 1500;

  Usage() {
    for (std::uint32_t rank = 0; rank < kExperts; ++rank) probabilities_.push_back(1.0 / (1.0 + rank * 0.5));
  }
  // Calls use(layer, experts) for every visit.
  template <class Use>
  void each(Use&& use) const {
    std::mt19937_64 random(7);
    for (std::uint32_t cycle = 0; cycle < kCycles; ++cycle) {
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        std::vector<std::uint32_t> experts;
        for (std::uint32_t expert = 0; expert < kExperts; ++expert) {
          if (std::uniform_real_distribution<>()(random) < probability(layer, expert))
            experts.push_back(expert);
        }
        use(layer, experts);
      }
    }
  }
  double probability(std::uint32_t layer, std::uint32_t expert) const {
    return probabilities_[(expert * 13 + layer * 5) % kExperts];  // other experts are hot in each layer
  }
  // The hit rate of the likeliest records of each layer, never changed.
  double best_fixed_set() const {
    double all = 0, hits = 0;
    for (std::uint32_t rank = 0; rank < kExperts; ++rank) {
      all += kLayers * probabilities_[rank];
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        const std::uint32_t quota =
            (kSlots - kTransit) / kLayers + (layer < (kSlots - kTransit) % kLayers ? 1 : 0);
        if (rank < quota) hits += probabilities_[rank];
      }
    }
    return hits / all;
  }

 private:
  std::vector<double> probabilities_;  // by rank, falling
};

TEST(SlotTable, HitsNearTheBestFixedSetWhereAGlobalLruCollapses) {
  const Usage usage;
  SlotTable table({.layers = Usage::kLayers,
                   .experts = Usage::kExperts,
                   .owned = Usage::kExperts,
                   .slots = Usage::kSlots,
                   .transit = Usage::kTransit});
  std::uint64_t uses = 0, hits = 0, lru_hits = 0;
  std::list<std::uint32_t> lru;  // most recent first
  usage.each([&](std::uint32_t layer, const std::vector<std::uint32_t>& experts) {
    uses += experts.size();
    hits += visit(table, layer, experts);
    for (const std::uint32_t expert : experts) {
      const std::uint32_t record = table.record_of(layer, expert);
      const auto recent = std::find(lru.begin(), lru.end(), record);
      if (recent != lru.end()) {
        ++lru_hits;
        lru.erase(recent);
      } else if (lru.size() == Usage::kSlots) {
        lru.pop_back();
      }
      lru.push_front(record);
    }
  });
  const double best = usage.best_fixed_set();
  const double rate = static_cast<double>(hits) / static_cast<double>(uses);
  const double lru_rate = static_cast<double>(lru_hits) / static_cast<double>(uses);
  std::printf("hit rate: best fixed set %.3f, slot table %.3f, global LRU %.3f\n", best, rate, lru_rate);
  EXPECT_GT(rate, 0.95 * best);
  EXPECT_LT(lru_rate, 0.3 * best);
}

}  // namespace
}  // namespace colibri
