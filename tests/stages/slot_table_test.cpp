// SlotTable: bookkeeping of slots, driven as `fetch` drives it.
#include "stages/slot_table.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
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
  SlotTable table(2, 32, 25, 6);
  table.begin_visit(0);
  for (std::uint32_t expert = 0; expert < 4; ++expert) ASSERT_TRUE(use_once(table, expert));
  for (std::uint32_t expert = 0; table.free_slots() >= 2; ++expert) {
    table.landed(table.begin_read(table.record_of(1, expert), 2, true));
  }
  for (std::uint32_t expert = 4; expert < 32; ++expert) {
    EXPECT_TRUE(use_once(table, expert)) << "expert " << expert << " waits for ever";
  }
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
    SlotTable table(layers, experts, slots, transit);
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
          } else if (const std::uint32_t slot = table.begin_read(record, 1, false); slot != SlotTable::kNone) {
            table.lease(slot, 1);
            table.landed(slot);
            leased.push_back(slot);
          } else {
            ASSERT_FALSE(leased.empty()) << "seed " << seed << ": a demand waits and nothing will free a slot";
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
  SlotTable table(3, 8, 24, 0);
  for (std::uint32_t record = 0; record < 24; ++record) ASSERT_TRUE(use_once(table, record));
  EXPECT_EQ(table.residents(), 24U);
  for (std::uint32_t record = 0; record < 24; ++record) EXPECT_NE(table.find(record), SlotTable::kNone);
}

}  // namespace
}  // namespace colibri
