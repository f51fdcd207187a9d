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
bool use_once(SlotTable& table, std::uint32_t record) {
  const std::uint32_t slot = table.begin_read(record, 1, false);
  if (slot == SlotTable::kNone) return false;
  table.lease(slot, 1);
  table.landed(slot);
  table.release(slot);
  return true;
}

TEST(SlotTable, HintsThatWaitAndResidentsLeaveASlotForDemands) {
  // Two layers of 32 experts. Hints for the second layer fill all slots but one; then more experts of the
  // first layer are demanded than its quota had left. Nothing gives a slot back before their visit is over.
  SlotTable table(2, 32, 32, 25, 6);
  table.begin_visit(0);
  for (std::uint32_t expert = 0; expert < 4; ++expert) ASSERT_TRUE(use_once(table, expert));
  for (std::uint32_t expert = 0; table.free_slots() >= 2; ++expert) {
    table.landed(table.begin_read(table.record_of(1, expert), 2, true));
  }
  for (std::uint32_t expert = 4; expert < 32; ++expert) {
    EXPECT_TRUE(use_once(table, expert)) << "expert " << expert << " waits for ever";
  }
}

TEST(SlotTable, LeasesAheadOfTheirTurnLeaveASlotForDemandsInTheirTurn) {
  SlotTable table(2, 8, 8, 3, 1);
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
TEST(SlotTable, ASlotIsFreeWheneverNothingIsLeased) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint32_t layers = 1 + random() % 4;
    const std::uint32_t experts = 2 + random() % 12;
    const std::uint32_t records = layers * experts;
    const std::uint32_t slots = 1 + random() % (records - 1);
    const std::uint32_t transit = 1 + random() % slots;
    SlotTable table(layers, experts, experts, slots, transit);
    std::vector<std::uint32_t> leased, hinted;
    for (int turn = 0; turn < 400; ++turn) {
      const std::uint32_t record = random() % records;
      const std::uint32_t present = table.find(record);
      switch (random() % 5) {
        case 0: table.begin_visit(random() % layers); break;
        case 1:  // demand
          table.used(record);
          if (present != SlotTable::kNone) {
            std::erase(hinted, present);
            table.lease(present, 2);
            leased.push_back(present);
          } else if (const std::uint32_t slot = table.begin_read(record, 1, false);
                     slot != SlotTable::kNone) {
            table.lease(slot, 1);
            table.landed(slot);
            leased.push_back(slot);
          } else {
            ASSERT_FALSE(leased.empty())
                << "seed " << seed << ": a demand waits and nothing will free a slot";
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
      if (leased.empty()) {
        ASSERT_GE(table.free_slots(), 1U) << "seed " << seed << ", turn " << turn;
      }
      ASSERT_LE(table.residents(), slots - transit);
    }
  }
}

TEST(SlotTable, WithASlotForEachRecordAllStay) {
  SlotTable table(3, 8, 8, 24, 0);
  for (std::uint32_t record = 0; record < 24; ++record) ASSERT_TRUE(use_once(table, record));
  EXPECT_EQ(table.residents(), 24U);
  for (std::uint32_t record = 0; record < 24; ++record) EXPECT_NE(table.find(record), SlotTable::kNone);
}

// The rules once more, as plain sets and maps; each decision is made here first and then looked up in the
// table.
class Model {
 public:
  Model(std::uint32_t layers, std::uint32_t experts, std::uint32_t slots, std::uint32_t transit)
      : layers_(layers),
        experts_(experts),
        slots_(slots),
        transit_(transit),
        residents_(layers),
        uses_(layers * experts),
        visits_(layers) {}

  struct Entry {
    bool landed = false, hinted = false;
    std::uint32_t leases = 0;
    std::uint64_t visit = 0;
  };

  std::uint32_t quota(std::uint32_t layer) const {
    const std::uint32_t shared = slots_ - transit_;
    return std::min(experts_, shared / layers_ + (layer < shared % layers_ ? 1 : 0));
  }
  bool resident(std::uint32_t record) const { return residents_[record / experts_].contains(record); }
  std::size_t all_residents() const {
    std::size_t count = 0;
    for (const auto& layer : residents_) count += layer.size();
    return count;
  }
  std::size_t hinted() const {
    return static_cast<std::size_t>(
        std::count_if(entries.begin(), entries.end(), [](const auto& entry) { return entry.second.hinted; }));
  }
  double probability(std::uint32_t record) const { return uses_[record] / (visits_[record / experts_] + 1); }
  void begin_visit(std::uint32_t layer) {
    if (visits_[layer] >= 256) {  // old visits count half
      visits_[layer] /= 2;
      for (std::uint32_t e = 0; e < experts_; ++e) uses_[layer * experts_ + e] /= 2;
    }
    visits_[layer] += 1;
  }
  void use(std::uint32_t record) { uses_[record] += 1; }

  // No lease and no hint holds the record any more: does it stay?
  void settle(std::uint32_t record) {
    const std::uint32_t layer = record / experts_;
    std::set<std::uint32_t>& residents = residents_[layer];
    if (residents.contains(record)) return;
    if (residents.size() < quota(layer)) {
      if (transit_ > 0 && all_residents() + hinted() + 1 == slots_) {
        entries.erase(record);
      } else {
        residents.insert(record);
      }
      return;
    }
    std::optional<std::uint32_t> worst;
    for (const std::uint32_t other : residents) {
      if (entries.at(other).leases == 0 && (!worst || probability(other) < probability(*worst)))
        worst = other;
    }
    if (worst && probability(record) > 1.05 * probability(*worst)) {
      entries.erase(*worst);
      residents.erase(*worst);
      residents.insert(record);
    } else {
      entries.erase(record);
    }
  }

  std::map<std::uint32_t, Entry> entries;  // by record

 private:
  std::uint32_t layers_, experts_, slots_, transit_;
  std::vector<std::set<std::uint32_t>> residents_;
  std::vector<double> uses_, visits_;
};

void expect_same(const SlotTable& table, const Model& model, std::uint32_t records) {
  std::set<std::uint32_t> taken;
  for (std::uint32_t record = 0; record < records; ++record) {
    const std::uint32_t index = table.find(record);
    const auto entry = model.entries.find(record);
    ASSERT_EQ(index != SlotTable::kNone, entry != model.entries.end()) << "record " << record;
    if (index == SlotTable::kNone) continue;
    ASSERT_TRUE(taken.insert(index).second) << "two records in one slot";
    const SlotTable::Slot& slot = table.slot(index);
    ASSERT_EQ(slot.record, record);
    ASSERT_EQ(slot.state == SlotTable::State::landed, entry->second.landed);
    ASSERT_EQ(slot.leases, entry->second.leases);
    ASSERT_EQ(slot.hinted, entry->second.hinted);
    ASSERT_EQ(slot.resident, model.resident(record));
  }
  ASSERT_EQ(table.free_slots() + taken.size(), table.size());
  ASSERT_EQ(table.residents(), model.all_residents());
  ASSERT_EQ(table.hinted_slots(), model.hinted());
}

// 100,000 random operations over many shapes, each compared with the model in full.
TEST(SlotTable, DoesWhatAModelOfPlainSetsDoes) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&random](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    const std::uint32_t layers = 1 + below(4), experts = 2 + below(8), records = layers * experts;
    const bool whole = seed % 10 == 0;  // a slot for every record
    const std::uint32_t slots = whole ? records : 1 + below(records - 1);
    const std::uint32_t transit = whole ? 0 : 1 + below(slots);
    SlotTable table(layers, experts, experts, slots, transit);
    Model model(layers, experts, slots, transit);
    for (int operation = 0; operation < 2000; ++operation) {
      // Two of three uses go to a quarter of the records, so that ranks differ.
      const std::uint32_t record = below(3) == 0 ? below(records) : below(records) / 4 * 4;
      const std::uint32_t index = table.find(record);
      const auto found = model.entries.find(record);
      const std::uint64_t visit = 1 + below(3);
      switch (below(6)) {
        case 0: {
          const std::uint32_t layer = below(layers);
          table.begin_visit(layer);
          model.begin_visit(layer);
          break;
        }
        case 1:  // a read for a demand or a hint
          if (found != model.entries.end()) break;
          {
            const bool hint = below(2) == 0 && table.free_slots() >= 2;
            const std::uint32_t slot = table.begin_read(record, visit, hint);
            ASSERT_EQ(slot == SlotTable::kNone, model.entries.size() == slots);
            if (slot == SlotTable::kNone) break;
            model.entries[record] = {.hinted = hint, .visit = visit};
            if (hint) break;
            table.lease(slot, visit);
            ++model.entries[record].leases;
          }
          break;
        case 2:  // the end of a read
          if (found == model.entries.end() || found->second.landed) break;
          if (below(5) == 0) {
            table.failed(index);
            model.entries.erase(record);
            break;
          }
          table.landed(index);
          found->second.landed = true;
          if (found->second.leases == 0 && !found->second.hinted) {
            table.hint_passed(index);  // its visit passed meanwhile
            model.settle(record);
          }
          break;
        case 3:  // another visit uses it
          table.used(record);
          model.use(record);
          if (found == model.entries.end()) break;
          table.lease(index, visit);
          ++found->second.leases;
          if (found->second.visit == visit) found->second.hinted = false;
          break;
        case 4:
          if (found == model.entries.end() || !found->second.landed || found->second.leases == 0) break;
          table.release(index);
          if (--found->second.leases == 0 && !found->second.hinted) model.settle(record);
          break;
        default:
          if (found == model.entries.end() || !found->second.hinted) break;
          table.hint_passed(index);
          found->second.hinted = false;
          if (found->second.landed && found->second.leases == 0) model.settle(record);
      }
      ASSERT_NEAR(table.probability(record), model.probability(record), 1e-5);
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
  // Calls use(layer, expert) for every use.
  template <class Use>
  void each(Use&& use) const {
    std::mt19937_64 random(7);
    for (std::uint32_t cycle = 0; cycle < kCycles; ++cycle) {
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        use(layer, std::nullopt);
        for (std::uint32_t expert = 0; expert < kExperts; ++expert) {
          if (std::uniform_real_distribution<>()(random) < probability(layer, expert))
            use(layer, std::optional(expert));
        }
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
  SlotTable table(Usage::kLayers, Usage::kExperts, Usage::kExperts, Usage::kSlots, Usage::kTransit);
  std::uint64_t uses = 0, hits = 0, lru_hits = 0;
  std::list<std::uint32_t> lru;  // most recent first
  usage.each([&](std::uint32_t layer, std::optional<std::uint32_t> expert) {
    if (!expert) {
      table.begin_visit(layer);
      return;
    }
    const std::uint32_t record = table.record_of(layer, *expert);
    ++uses;
    table.used(record);
    if (const std::uint32_t slot = table.find(record); slot != SlotTable::kNone) {
      ++hits;
      table.lease(slot, 1);
      table.release(slot);
    } else {
      ASSERT_TRUE(use_once(table, record));
    }
    const auto recent = std::find(lru.begin(), lru.end(), record);
    if (recent != lru.end()) {
      ++lru_hits;
      lru.erase(recent);
    } else if (lru.size() == Usage::kSlots) {
      lru.pop_back();
    }
    lru.push_front(record);
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
