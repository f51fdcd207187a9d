// transfer: where records and slots go when it copies, and when several of it share out the experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "moe_job.hpp"
#include "stages/transfer.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/stage_harness.hpp"

namespace colibri::testing {
namespace {

const StageKind kTransferKind{&kTransferInfo, create_transfer, transfer_memory_bytes};
constexpr std::uint8_t kReleasedIn = 0, kExpertsIn = 1;
constexpr std::uint32_t kExpertsOut = 0, kReleasedOut = 1;

class TransferTest : public ::testing::Test {
 protected:
  // A transfer that copies into one staging record.
  std::unique_ptr<StageHarness> open(std::uint32_t instance) {
    job.services.plan.param = [](std::string_view name) {
      return std::string_view(name == "mode" ? "copy" : "1");
    };
    auto harness = std::make_unique<StageHarness>(
        kTransferKind, job.services,
        HarnessOptions{.params = {{"mode", "copy"}, {"staging", "1"}}, .instance = instance});
    harness->emitter.shares[kExpertsOut] = harness->emitter.shares[kReleasedOut] = {
        ExpertPartition::parse("0-3").value(), ExpertPartition::parse("4-").value()};
    return harness;
  }
  Message record(std::uint32_t expert, std::uint32_t slot) {
    std::byte* data = job.services.slots.base + slot * job.services.slots.stride;
    std::memset(data, static_cast<int>(expert + 1), job.container->layout().record_bytes);
    visit.records[expert] = {.data = data, .slot = slot, .kept = true};
    return {.type = MessageType::expert, .first = expert, .count = 1, .object = &visit};
  }
  // A message about several.
  Message chain(std::vector<std::pair<std::uint32_t, std::uint32_t>> experts_and_slots) {
    for (std::size_t i = 0; i < experts_and_slots.size(); ++i) {
      record(experts_and_slots[i].first, experts_and_slots[i].second);
      if (i > 0) visit.records[experts_and_slots[i - 1].first].next = experts_and_slots[i].first;
    }
    return {.type = MessageType::expert,
            .first = experts_and_slots.front().first,
            .count = static_cast<std::uint32_t>(experts_and_slots.size()),
            .object = &visit};
  }
  static Message take(StageHarness& harness, std::uint32_t port, std::uint32_t owner) {
    Message message;
    std::uint32_t sent_to = 99;
    EXPECT_TRUE(harness.take(port, message, &sent_to));
    EXPECT_EQ(sent_to, owner);
    return message;
  }

  // The lease of a message of one.
  static Lease lease_of(const Message& message) {
    EXPECT_EQ(message.count, 1U);
    return message.count == 0 ? Lease{} : message.leases().front();
  }
  static void release(StageHarness& harness, std::vector<Lease> leases) {
    harness.send(kReleasedIn, {.type = MessageType::slot,
                               .count = static_cast<std::uint32_t>(leases.size()),
                               .object = leases.data()});
  }

  MoeJob job{golden_container("qwen3_moe", "config.json", "auto"), {.slots = 4, .transit = 1}};
  std::vector<LentRecord> records = std::vector<LentRecord>(job.spec().num_experts);
  Visit visit{.records = records.data()};
};

TEST_F(TransferTest, CopiesAndReturnsTheSlotToTheOwnerOfItsExpert) {
  const auto transfer = open(0);
  transfer->send(kExpertsIn, record(5, 2));
  const Message moved = take(*transfer, kExpertsOut, 1);
  EXPECT_EQ(moved.first, 5U);
  const std::uint32_t staging = records[5].slot;
  EXPECT_NE(records[5].data, job.services.slots.base + 2 * job.services.slots.stride);
  EXPECT_EQ(records[5].data[7], std::byte{6});
  EXPECT_FALSE(records[5].kept) << "staging memory can be copied into as soon as it is free";
  const Lease slot = lease_of(take(*transfer, kReleasedOut, 1));
  EXPECT_EQ(slot.slot, 2U);
  EXPECT_EQ(slot.expert, 5U);
  // No staging is free: the slot itself goes on, and comes back through here.
  transfer->send(kExpertsIn, record(1, 3));
  const Message handed = take(*transfer, kExpertsOut, 0);
  EXPECT_EQ(handed.count, 1U);
  EXPECT_EQ(records[1].slot, 3U);
  EXPECT_TRUE(records[1].kept);
  release(*transfer, {{.slot = 3, .expert = 1}});
  EXPECT_EQ(lease_of(take(*transfer, kReleasedOut, 0)).slot, 3U);
  // The staging memory comes back: the next record is copied again.
  release(*transfer, {{.slot = staging, .expert = 5}});
  EXPECT_EQ(transfer->level(kReleasedOut), 0U);
  transfer->send(kExpertsIn, record(2, 1));
  take(*transfer, kExpertsOut, 0);
  EXPECT_EQ(records[2].slot, staging);
  EXPECT_EQ(transfer->count("copied_bytes_total"), 2 * job.container->layout().record_bytes);
}

// Leases of one message: own staging memory stays, the others go on, each to the owner of its expert.
TEST_F(TransferTest, SharesOutLeasesThatComeTogether) {
  const auto transfer = open(0);
  transfer->send(kExpertsIn, record(5, 2));
  take(*transfer, kExpertsOut, 1);
  take(*transfer, kReleasedOut, 1);
  const std::uint32_t staging = records[5].slot;
  release(*transfer, {{.slot = 0, .expert = 6}, {.slot = 1, .expert = 2}, {.slot = staging, .expert = 5},
                      {.slot = 3, .expert = 0}});
  const Message low = take(*transfer, kReleasedOut, 0);
  ASSERT_EQ(low.count, 2U);
  EXPECT_EQ(low.leases()[0].slot, 1U);
  EXPECT_EQ(low.leases()[1].slot, 3U);
  EXPECT_EQ(lease_of(take(*transfer, kReleasedOut, 1)).slot, 0U);
  EXPECT_EQ(transfer->level(kReleasedOut), 0U);
  transfer->send(kExpertsIn, record(2, 1));
  take(*transfer, kExpertsOut, 0);
  EXPECT_EQ(records[2].slot, staging) << "the staging memory is free again";
}

// A record that passes two transfers: each takes back its own staging memory and lets the other's pass.
TEST_F(TransferTest, KnowsItsOwnStagingMemory) {
  const auto first = open(0);
  const auto second = open(1);
  first->send(kExpertsIn, record(4, 0));
  const Message from_first = take(*first, kExpertsOut, 1);
  const std::uint32_t first_staging = records[4].slot;
  take(*first, kReleasedOut, 1);
  second->send(kExpertsIn, from_first);
  take(*second, kExpertsOut, 1);
  const std::uint32_t second_staging = records[4].slot;
  EXPECT_NE(second_staging, first_staging);
  EXPECT_EQ(records[4].data[7], std::byte{5});
  const Message back = take(*second, kReleasedOut, 1);
  EXPECT_EQ(lease_of(back).slot, first_staging);
  release(*second, {{.slot = first_staging, .expert = 4}});
  EXPECT_EQ(lease_of(take(*second, kReleasedOut, 1)).slot, first_staging);
  first->send(kReleasedIn, back);
  EXPECT_EQ(first->level(kReleasedOut), 0U);
  first->send(kExpertsIn, record(6, 1));
  take(*first, kExpertsOut, 1);
  EXPECT_EQ(records[6].slot, first_staging) << "the staging memory is free again";
}

// Records of one message: those that fit are copied, each goes to the owner of its expert, in order.
TEST_F(TransferTest, SharesOutRecordsThatComeTogether) {
  const auto transfer = open(0);
  transfer->send(kExpertsIn, chain({{6, 0}, {1, 1}, {4, 2}, {3, 3}}));
  const Message low = take(*transfer, kExpertsOut, 0);
  ASSERT_EQ(low.count, 2U);
  EXPECT_EQ(low.first, 1U);
  EXPECT_EQ(records[1].next, 3U);
  const Message high = take(*transfer, kExpertsOut, 1);
  ASSERT_EQ(high.count, 2U);
  EXPECT_EQ(high.first, 6U);
  EXPECT_EQ(records[6].next, 4U);
  EXPECT_EQ(transfer->level(kExpertsOut), 0U);
  const Lease copied = lease_of(take(*transfer, kReleasedOut, 1));
  EXPECT_EQ(copied.slot, 0U);
  EXPECT_EQ(copied.expert, 6U);
  EXPECT_EQ(transfer->level(kReleasedOut), 0U);
  EXPECT_EQ(records[6].data[7], std::byte{7});
  EXPECT_EQ(records[1].slot, 1U);
  EXPECT_EQ(records[4].slot, 2U);
  EXPECT_EQ(records[3].slot, 3U);
  EXPECT_EQ(transfer->count("handed_over_total"), 3U);
}

TEST_F(TransferTest, AFailedReadGoesToTheOwnerToo) {
  const auto transfer = open(0);
  Status error(ErrorCode::io, "unreadable: test; none");
  transfer->send(
      kExpertsIn,
      {.type = MessageType::expert, .first = 9, .count = 1, .object = &visit, .error = &error});
  const Message failed = take(*transfer, kExpertsOut, 1);
  EXPECT_EQ(failed.error, &error);
  EXPECT_EQ(transfer->level(kReleasedOut), 0U);
}

}  // namespace
}  // namespace colibri::testing
