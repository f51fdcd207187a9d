// fetch over a real container, one call at a time: what it reads, in which order, how often, and whom it tells.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "io/read/fault_backend.hpp"
#include "moe_job.hpp"
#include "stages/fetch.hpp"
#include "stages/usage_counts.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/stage_harness.hpp"

namespace colibri::testing {
namespace {

using namespace std::chrono_literals;

const StageKind kFetchKind{&kFetchInfo, create_fetch, nullptr};
constexpr std::uint8_t kReleased = 0, kDemand = 1, kHints = 2;
constexpr std::uint32_t kExpertsOut = 0, kSpentOut = 1;
constexpr std::chrono::seconds kLong{20};  // reads that must come

struct Delivered {
  Visit* visit;
  std::uint32_t expert, slot;
  const std::byte* data;
  Status error;
};

// One fetch stage, and the model it reads.
class FetchTest : public ::testing::Test {
 protected:
  void open(MoeJobOptions options, std::vector<Fault> faults = {}, std::map<std::string, std::string> params = {},
            std::filesystem::path folder = golden_container("qwen3_moe", "config.json", "auto")) {
    job.emplace(folder, options);
    if (!shares.empty()) job->services.slots.shares = shares;
    plan = std::make_shared<FaultPlan>(std::move(faults));
    job->services.read_faults = plan;
    job->services.usage = open_usage;
    params.try_emplace("backend", "pread");
    params.try_emplace("lanes", "1");  // the order of reads is then exact
    fetch.emplace(kFetchKind, job->services, HarnessOptions{.params = params, .instance = instance});
    ASSERT_TRUE(fetch->started.is_ok()) << fetch->started.to_string();
    bytes = job->container->layout().record_bytes;
  }
  void TearDown() override {
    if (plan) plan->release();
    collect();
    fetch.reset();
  }

  // Demands `experts` of a visit, as a wave does.
  void demand(Visit& visit, std::vector<std::uint32_t> experts, bool last) {
    const std::uint32_t first = visit.expert_count;
    for (const std::uint32_t expert : experts) visit.experts[visit.expert_count++] = expert;
    fetch->send(kDemand, {.type = MessageType::demand, .last = last, .first = first,
                          .count = static_cast<std::uint32_t>(experts.size()), .layer = visit.layer,
                          .step_slot = visit.step->slot, .step_serial = visit.step->serial, .object = &visit});
    collect();
  }
  void hint(const Step& step, std::uint32_t layer, const std::vector<std::uint32_t>& experts) {
    HintBatch& batch = job->services.hint_batches[0];
    batch.step_serial = step.serial;
    batch.target_count = 1;
    HintTarget& target = batch.targets[0];
    target.layer = layer;
    target.expert_count = static_cast<std::uint32_t>(experts.size());
    for (std::size_t i = 0; i < experts.size(); ++i) {
      target.experts[i] = experts[i];
      target.probabilities[i] = 1.0F;  // certain ones are read whatever is known of the drive
    }
    fetch->send(kHints, {.type = MessageType::hint, .object = &batch});
    Message spent;
    ASSERT_TRUE(fetch->take(kSpentOut, spent));
    ASSERT_EQ(spent.hints(), &batch);
    collect();
  }
  void release(std::uint32_t slot) {
    Lease lease{.slot = slot};
    fetch->send(kReleased, {.type = MessageType::slot, .count = 1, .object = &lease});
    collect();
  }
  // Hands one completion (or tick) to the stage; false when none comes.
  bool pump(std::chrono::milliseconds limit = kLong) {
    Message message;
    if (!fetch->context.take_posted(message, limit)) return false;
    fetch->send(kCompletionPort, message);
    collect();
    return true;
  }
  void pump_until_delivered(std::size_t count) {
    while (delivered.size() < count) ASSERT_TRUE(pump()) << delivered.size() << " of " << count;
  }
  void collect() {
    Message message;
    while (fetch->take(kExpertsOut, message)) {
      const std::unique_ptr<Status> error(message.error);
      ++messages;
      std::uint32_t expert = message.first;
      for (std::uint32_t i = 0; i < message.count; ++i) {
        const LentRecord record = error ? LentRecord{.slot = 0xffffffffU} : message.visit()->records[expert];
        delivered.push_back({message.visit(), expert, record.slot, record.data, error ? *error : Status()});
        expert = record.next;
      }
    }
  }
  std::uint64_t offset(std::uint32_t layer, std::uint32_t expert) const {
    return job->container->record(layer, expert).offset;
  }
  void expect_record(const Delivered& one, std::uint32_t layer) const {
    ASSERT_NE(one.data, nullptr) << one.error.to_string();
    const auto expected = job->record_bytes(layer, one.expert);
    EXPECT_EQ(std::memcmp(one.data, expected.data(), expected.size()), 0) << "layer " << layer << " expert " << one.expert;
  }

  std::vector<SlotShare> shares;  // at the next open; empty: all slots are the stage's
  std::uint32_t instance = 0;  // of the stage, at the next open
  UsageSnapshot* open_usage = nullptr;  // of earlier jobs, at the next open
  std::optional<MoeJob> job;
  std::shared_ptr<FaultPlan> plan;
  std::optional<StageHarness> fetch;
  std::vector<Delivered> delivered;
  std::size_t messages = 0;  // about what was delivered
  std::uint64_t bytes = 0;
};

TEST_F(FetchTest, OneSlotIsEnough) {
  open({.slots = 1, .transit = 1});
  Step& step = job->begin_step(0, 4);
  Visit& visit = job->begin_visit(step, 0, 0);
  demand(visit, {3, 1, 7}, false);
  demand(visit, {0, 11}, true);
  const std::uint32_t expected[] = {3, 1, 7, 0, 11};
  for (std::size_t i = 0; i < 5; ++i) {
    pump_until_delivered(i + 1);
    EXPECT_EQ(delivered.size(), i + 1) << "a record in a slot that is leased";
    EXPECT_EQ(delivered[i].expert, expected[i]);
    expect_record(delivered[i], 0);
    release(delivered[i].slot);
  }
  EXPECT_EQ(fetch->count("reads_total"), 5U);
  EXPECT_EQ(fetch->count("hits_total"), 0U);
  EXPECT_EQ(fetch->count("peak_pending_demands"), 4U);
}

TEST_F(FetchTest, DemandsAreReadBeforeHints) {
  open({.slots = 8, .transit = 8}, {{.kind = FaultKind::hang, .first = 1}});
  Step& step = job->begin_step(0, 4);
  Visit& visit = job->begin_visit(step, 0, 0);
  hint(step, 1, {5, 6, 7});
  ASSERT_TRUE(plan->wait_until_hanging(1, kLong));
  demand(visit, {2, 9}, true);
  plan->release();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(pump());
  EXPECT_EQ(plan->offsets_started(),
            (std::vector<std::uint64_t>{offset(1, 5), offset(0, 2), offset(0, 9), offset(1, 6), offset(1, 7)}));
}

TEST_F(FetchTest, AHintInTheQueueIsPromotedWhenDemanded) {
  open({.slots = 8, .transit = 8}, {{.kind = FaultKind::hang, .first = 1}});
  Step& step = job->begin_step(0, 4);
  hint(step, 0, {5, 6, 7});
  ASSERT_TRUE(plan->wait_until_hanging(1, kLong));
  Visit& visit = job->begin_visit(step, 0, 0);
  demand(visit, {7, 5, 6}, true);
  plan->release();
  pump_until_delivered(3);
  EXPECT_EQ(plan->offsets_started(), (std::vector<std::uint64_t>{offset(0, 5), offset(0, 7), offset(0, 6)}));
  EXPECT_EQ(fetch->count("reads_total"), 3U);
  EXPECT_EQ(fetch->count("late_hints_total"), 3U);
  EXPECT_EQ(fetch->count("wasted_hint_bytes_total"), 0U);
  for (const Delivered& one : delivered) expect_record(one, 0);
}

TEST_F(FetchTest, ALandedHintIsAHit) {
  open({.slots = 8, .transit = 8});
  Step& step = job->begin_step(0, 4);
  hint(step, 0, {5});
  ASSERT_TRUE(pump());
  Visit& visit = job->begin_visit(step, 0, 0);
  demand(visit, {5}, true);
  ASSERT_EQ(delivered.size(), 1U);
  expect_record(delivered[0], 0);
  EXPECT_EQ(fetch->count("useful_hints_total"), 1U);
  EXPECT_EQ(fetch->count("hits_total"), 1U);
}

TEST_F(FetchTest, HintsMayBeTurnedOffAndOnWhileItRuns) {
  open({.slots = 8, .transit = 8}, {{.kind = FaultKind::hang, .first = 1}});
  Step& step = job->begin_step(0, 4);
  hint(step, 1, {5});
  ASSERT_TRUE(plan->wait_until_hanging(1, kLong));
  EXPECT_EQ(fetch->count("hint_reads_total"), 1U);
  fetch->context.set("hints", "false");
  hint(step, 1, {6, 7});
  plan->release();
  ASSERT_TRUE(pump());
  EXPECT_EQ(fetch->count("hint_reads_total"), 1U);
  fetch->context.set("hints", "true");
  hint(step, 1, {8});
  ASSERT_TRUE(pump());
  EXPECT_EQ(plan->offsets_started(), (std::vector<std::uint64_t>{offset(1, 5), offset(1, 8)}));
}

TEST_F(FetchTest, ARecordInFlightIsNotReadAgain) {
  open({.in_flight = 2, .slots = 8, .transit = 8}, {{.kind = FaultKind::hang, .first = 1}});
  Visit& first = job->begin_visit(job->begin_step(0, 4), 0, 1);
  Visit& second = job->begin_visit(job->begin_step(1, 4), 0, 1);
  demand(first, {4}, true);
  ASSERT_TRUE(plan->wait_until_hanging(1, kLong));
  demand(second, {4}, true);
  EXPECT_TRUE(delivered.empty());
  plan->release();
  pump_until_delivered(2);
  EXPECT_EQ(delivered[0].visit, &first);
  EXPECT_EQ(delivered[1].visit, &second);
  EXPECT_EQ(delivered[0].slot, delivered[1].slot);
  expect_record(delivered[1], 1);
  release(delivered[0].slot);
  expect_record(delivered[1], 1);  // still leased
  release(delivered[1].slot);
  EXPECT_EQ(plan->offsets_started().size(), 1U);
  EXPECT_EQ(fetch->count("bytes_read_total"), bytes);
  EXPECT_EQ(fetch->count("distinct_bytes_total"), bytes);
}

// A slot can come back before the visit's last demand is looked at: what the visit has demanded is not read
// again for a hint that still waits.
TEST_F(FetchTest, AHintForWhatItsVisitHadIsNotRead) {
  open({.slots = 3, .transit = 3});
  Step& step = job->begin_step(0, 4);
  Visit& visit = job->begin_visit(step, 0, 0);
  hint(step, 0, {5, 6, 3});  // one slot is for demands: 3 waits
  demand(visit, {3}, false);
  pump_until_delivered(1);
  EXPECT_EQ(delivered[0].expert, 3U);
  release(delivered[0].slot);
  while (fetch->count("reads_total") < 3) ASSERT_TRUE(pump());
  demand(visit, {5}, false);
  pump_until_delivered(2);
  release(delivered[1].slot);  // two slots are free now, enough for a hint
  hint(step, 0, {3});
  demand(visit, {6}, true);
  pump_until_delivered(3);
  EXPECT_FALSE(pump(50ms)) << "a fourth read";
  EXPECT_EQ(fetch->count("reads_total"), 3U);
  EXPECT_EQ(fetch->count("bytes_read_total"), fetch->count("distinct_bytes_total"));
}

TEST_F(FetchTest, StaleHintsAreDroppedAndCounted) {
  open({.slots = 8, .transit = 8}, {{.kind = FaultKind::hang, .first = 2}});
  Step& step = job->begin_step(0, 4);
  hint(step, 0, {1, 2, 3});
  ASSERT_TRUE(pump());  // 1 has landed
  ASSERT_TRUE(plan->wait_until_hanging(1, kLong));  // 2 is being read, 3 is queued
  Visit& visit = job->begin_visit(step, 0, 0);
  demand(visit, {9}, true);  // the visit is over for hints
  EXPECT_EQ(fetch->count("wasted_hint_bytes_total"), bytes);
  ASSERT_TRUE(pump());  // 3 was cancelled before it was read
  EXPECT_EQ(fetch->count("wasted_hint_bytes_total"), bytes);
  plan->release();
  pump_until_delivered(1);
  EXPECT_EQ(plan->offsets_started(), (std::vector<std::uint64_t>{offset(0, 1), offset(0, 2), offset(0, 9)}));
  EXPECT_EQ(fetch->count("wasted_hint_bytes_total"), 2 * bytes);
  // Hints that come after their visit change nothing.
  hint(step, 0, {4, 5});
  EXPECT_FALSE(pump(20ms));
  EXPECT_EQ(fetch->count("reads_total"), 3U);
  EXPECT_EQ(fetch->count("distinct_bytes_total"), 3 * bytes);
}

TEST_F(FetchTest, ADemandBetweenCancelAndItsCompletionStartsOver) {
  open({.in_flight = 2, .slots = 8, .transit = 8}, {{.kind = FaultKind::hang, .first = 1}});
  Step& step = job->begin_step(0, 4);
  hint(step, 0, {1, 2});
  ASSERT_TRUE(plan->wait_until_hanging(1, kLong));  // 1 is being read, 2 is queued
  demand(job->begin_visit(step, 0, 0), {9}, true);  // 2 is cancelled; nobody has taken the completion
  Visit& late = job->begin_visit(job->begin_step(1, 4), 0, 0);
  demand(late, {2, 1}, true);
  plan->release();
  pump_until_delivered(3);
  std::map<std::uint32_t, int> times;
  for (const Delivered& one : delivered) {
    ++times[one.expert];
    expect_record(one, 0);
  }
  EXPECT_EQ(times, (std::map<std::uint32_t, int>{{1, 1}, {2, 1}, {9, 1}}));
  EXPECT_EQ(fetch->count("reads_total"), 3U);
  EXPECT_EQ(fetch->count("bytes_read_total"), fetch->count("distinct_bytes_total"));
  EXPECT_EQ(fetch->count("failed_reads_total"), 0U);
}

TEST_F(FetchTest, AFailedReadIsReportedByNameAndItsSlotIsFree) {
  // Two tries fail for good; later ones of the same record succeed.
  open({.in_flight = 2, .slots = 1, .transit = 1}, {{.kind = FaultKind::io_error, .first = 1, .count = 2}});
  Visit& first = job->begin_visit(job->begin_step(0, 4), 0, 2);
  Visit& second = job->begin_visit(job->begin_step(1, 4), 0, 2);
  demand(first, {6}, true);
  demand(second, {6}, true);
  pump_until_delivered(2);
  for (const Delivered& one : delivered) {
    EXPECT_EQ(one.data, nullptr);
    EXPECT_EQ(one.error.code(), ErrorCode::io);
    EXPECT_NE(one.error.to_string().find("layer 2, expert 6"), std::string::npos) << one.error.to_string();
  }
  EXPECT_EQ(fetch->count("failed_reads_total"), 1U);
  demand(job->begin_visit(job->begin_step(0, 4), 0, 2), {6}, true);
  pump_until_delivered(3);
  expect_record(delivered[2], 2);
  release(delivered[2].slot);
}

TEST_F(FetchTest, AFlippedByteIsFoundAndNamed) {
  namespace fs = std::filesystem;
  const fs::path original = golden_container("qwen3_moe", "config.json", "auto");
  const fs::path damaged = original.parent_path() / "flipped";
  fs::remove_all(damaged);
  fs::copy(original, damaged, fs::copy_options::recursive);
  const auto container = Container::open(original).value();
  const std::uint64_t at = container->record(1, 3).offset + 1000;
  {
    std::fstream file(damaged / "experts.bin", std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
  }
  open({.slots = 2, .transit = 2}, {}, {}, damaged);
  Visit& visit = job->begin_visit(job->begin_step(0, 4), 0, 1);
  demand(visit, {2, 3}, true);
  pump_until_delivered(2);
  for (const Delivered& one : delivered) {
    if (one.expert == 2) {
      expect_record(one, 1);
      continue;
    }
    EXPECT_EQ(one.error.code(), ErrorCode::corrupt);
    EXPECT_NE(one.error.to_string().find("layer 1, expert 3"), std::string::npos) << one.error.to_string();
  }
  fs::remove_all(damaged);
}

// What lies in slots already is told at once and together, to each owner of experts.
TEST_F(FetchTest, ResidentsOfADemandGoInOneMessage) {
  open({.slots = 16, .transit = 1});
  fetch->emitter.shares[kExpertsOut] = {ExpertPartition::parse("0-3").value(), ExpertPartition::parse("4-").value()};
  demand(job->begin_visit(job->begin_step(0, 4), 0, 0), {2, 5, 7, 3}, true);
  pump_until_delivered(4);
  for (std::size_t i = 0; i < 4; ++i) release(delivered[i].slot);
  messages = 0;
  Visit& again = job->begin_visit(job->begin_step(0, 4), 1, 0);
  demand(again, {7, 3, 2, 5, 9}, true);
  EXPECT_EQ(delivered.size(), 8U);
  EXPECT_EQ(messages, 2U);
  pump_until_delivered(9);
  EXPECT_EQ(messages, 3U) << "the one that had to be read";
  std::multiset<std::uint32_t> experts;
  for (std::size_t i = 4; i < 9; ++i) {
    EXPECT_EQ(delivered[i].visit, &again);
    experts.insert(delivered[i].expert);
    expect_record(delivered[i], 0);
  }
  EXPECT_EQ(experts, (std::multiset<std::uint32_t>{2, 3, 5, 7, 9}));
}

TEST_F(FetchTest, AReadPastItsDeadlineFailsItsDemandsAndKeepsItsSlot) {
  open({.in_flight = 2, .slots = 2, .transit = 2}, {{.kind = FaultKind::hang, .first = 1, .count = 1}},
       {{"deadline_ms", "60"}, {"lanes", "2"}});
  Visit& visit = job->begin_visit(job->begin_step(0, 4), 0, 0);
  demand(visit, {4}, true);
  pump_until_delivered(1);
  EXPECT_EQ(delivered[0].error.code(), ErrorCode::timeout);
  const std::string text = delivered[0].error.to_string();
  EXPECT_NE(text.find("layer 0, expert 4"), std::string::npos) << text;
  EXPECT_NE(text.find("experts.bin, offset " + std::to_string(offset(0, 4))), std::string::npos) << text;
  // Demanded again while the drive has not answered: refused at once, not read a second time.
  Visit& again = job->begin_visit(job->begin_step(1, 4), 0, 0);
  demand(again, {4, 5, 6}, true);
  ASSERT_EQ(delivered.size(), 2U);
  EXPECT_EQ(delivered[1].error.code(), ErrorCode::timeout);
  // The other slot serves everything else.
  for (const std::size_t next : {3, 4}) {
    pump_until_delivered(next);
    expect_record(delivered[next - 1], 0);
    release(delivered[next - 1].slot);
  }
  plan->release();
  while (fetch->count("failed_reads_total") == 1 && plan->hanging() > 0) pump(10ms);
  while (pump(100ms)) {
  }
  // The late answer made the slot free: two records fit again.
  Visit& third = job->begin_visit(job->begin_step(0, 4), 0, 0);
  demand(third, {4, 7}, true);
  pump_until_delivered(6);
  expect_record(delivered[4], 0);
  expect_record(delivered[5], 0);
  EXPECT_NE(delivered[4].slot, delivered[5].slot);
}

// The drive hangs under a deadline of a day; a shorter one ends the wait.
TEST_F(FetchTest, TheDeadlineMayChangeWhileAReadHangs) {
  open({.slots = 2, .transit = 2}, {{.kind = FaultKind::hang, .first = 1, .count = 1}},
       {{"deadline_ms", "86400000"}});
  Visit& visit = job->begin_visit(job->begin_step(0, 4), 0, 0);
  demand(visit, {4}, true);
  ASSERT_TRUE(plan->wait_until_hanging(1, kLong));
  fetch->context.set("deadline_ms", "40");
  pump_until_delivered(1);
  EXPECT_EQ(delivered[0].error.code(), ErrorCode::timeout);
  EXPECT_NE(delivered[0].error.to_string().find("in 40 ms"), std::string::npos) << delivered[0].error.to_string();
}

// A byte a second is no hanging drive, and without the limit the read ends.
TEST_F(FetchTest, TheBandwidthLimitMayChangeWhileAReadWaitsForIt) {
  open({.slots = 2, .transit = 2}, {}, {{"bandwidth_limit", "1"}, {"deadline_ms", "1000"}});
  Visit& visit = job->begin_visit(job->begin_step(0, 4), 0, 0);
  demand(visit, {4}, true);
  for (const auto begin = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - begin < 1100ms;)
    pump(50ms);  // ticks only
  EXPECT_TRUE(delivered.empty()) << "read, or given up";
  fetch->context.set("bandwidth_limit", "0");
  pump_until_delivered(1);
  expect_record(delivered[0], 0);
}

TEST_F(FetchTest, WithEverySlotBehindAHangingReadDemandsFail) {
  open({.slots = 1, .transit = 1}, {{.kind = FaultKind::hang, .first = 1, .count = 1}}, {{"deadline_ms", "60"}});
  Visit& visit = job->begin_visit(job->begin_step(0, 4), 0, 0);
  demand(visit, {4, 5, 6}, true);
  pump_until_delivered(3);
  for (const Delivered& one : delivered) EXPECT_EQ(one.error.code(), ErrorCode::timeout);
}

TEST_F(FetchTest, StopGivesUpTheSlotsOfADriveThatHangs) {
  open({.slots = 1, .transit = 1}, {{.kind = FaultKind::hang, .first = 1, .count = 1}}, {{"deadline_ms", "30"}});
  demand(job->begin_visit(job->begin_step(0, 4), 0, 0), {4}, true);
  ASSERT_TRUE(plan->wait_until_hanging(1, kLong));
  fetch.reset();
  EXPECT_EQ(job->leaks, 1);
  ASSERT_EQ(job->failures.size(), 1U);
  EXPECT_EQ(job->failures[0].code(), ErrorCode::timeout);
  plan->release();
  open({.slots = 1, .transit = 1});  // for the tear-down
}

TEST_F(FetchTest, ARefusedRingFailsTheStart) {
  job.emplace(golden_container("qwen3_moe", "config.json", "auto"), MoeJobOptions{});
  plan = std::make_shared<FaultPlan>();
  plan->ring_setup_error = 1;
  job->services.read_faults = plan;
  fetch.emplace(kFetchKind, job->services, HarnessOptions{.params = {{"backend", "io_uring"}}});
  EXPECT_FALSE(fetch->started.is_ok());
}

// Records of earlier jobs: likeliest first, counted apart, after what is demanded; a slot is left for that.
TEST_F(FetchTest, EarlierJobsRecordsAreReadWhileNothingElseIs) {
  UsageSnapshot usage{.visits = {10, 10, 20}, .uses = std::vector<float>(36)};
  usage.uses[5] = 9;        // layer 0
  usage.uses[12 + 3] = 4;   // layer 1
  usage.uses[24 + 7] = 10;  // layer 2: half of its visits
  usage.uses[7] = 2;
  usage.uses[1] = 1;  // there are three places
  open_usage = &usage;
  open({.slots = 5, .transit = 2}, {{.kind = FaultKind::hang, .first = 1}});
  ASSERT_TRUE(plan->wait_until_hanging(1, kLong));
  EXPECT_GE(fetch->count("prewarm_under_way"), 1U);
  Step& step = job->begin_step(0, 4);
  Visit& visit = job->begin_visit(step, 0, 0);
  demand(visit, {9}, true);
  plan->release();
  pump_until_delivered(1);
  release(delivered[0].slot);
  while (fetch->count("prewarm_reads_total") < 3) ASSERT_TRUE(pump());
  EXPECT_FALSE(pump(20ms));
  EXPECT_EQ(plan->offsets_started(),
            (std::vector<std::uint64_t>{offset(0, 5), offset(0, 9), offset(2, 7), offset(1, 3)}));
  EXPECT_EQ(fetch->count("prewarm_bytes_total"), 3 * bytes);
  EXPECT_EQ(fetch->count("prewarm_under_way"), 0U);
  EXPECT_EQ(fetch->count("bytes_read_total"), bytes);
  EXPECT_EQ(fetch->count("distinct_bytes_total"), bytes);
  demand(job->begin_visit(job->begin_step(0, 4), 0, 2), {7}, true);
  ASSERT_EQ(delivered.size(), 2U);
  expect_record(delivered[1], 2);
  EXPECT_EQ(fetch->count("hits_total"), 1U);
  // What this job has seen is there for the next one.
  release(delivered[1].slot);
  fetch.reset();
  EXPECT_EQ(usage.uses[9], 1);
  EXPECT_EQ(usage.uses[24 + 7], 11);
  EXPECT_EQ(usage.visits, (std::vector<float>{11, 10, 21}));
  open_usage = nullptr;
  open({.slots = 1, .transit = 1});  // for the tear-down
}

// The second of two fetches, with the odd experts: its slots, its reads, its hints.
class SharedFetchTest : public FetchTest {
 protected:
  void open_odd(MoeJobOptions options, std::vector<SlotShare> parts, std::vector<Fault> faults = {}) {
    shares = std::move(parts);
    instance = 1;
    open(options, std::move(faults), {{"experts", "1/2"}});
  }
};

TEST_F(SharedFetchTest, UsesItsOwnSlots) {
  open_odd({.slots = 8}, {{0, 5, 1}, {5, 3, 3}});
  Visit& visit = job->begin_visit(job->begin_step(0, 4), 0, 0);
  demand(visit, {1, 3, 5, 7}, true);
  pump_until_delivered(3);
  EXPECT_FALSE(pump(20ms)) << "more reads than slots";
  std::set<std::uint32_t> slots;
  for (const Delivered& one : delivered) {
    slots.insert(one.slot);
    EXPECT_EQ(one.data, job->services.slots.base + one.slot * job->services.slots.stride);
    expect_record(one, 0);
  }
  EXPECT_EQ(slots, (std::set<std::uint32_t>{5, 6, 7}));
  release(delivered[1].slot);
  pump_until_delivered(4);
  EXPECT_EQ(delivered[3].slot, delivered[1].slot);
  // Slots of the other fetch are not this one's.
  for (const std::uint32_t foreign : {0U, 4U, 8U}) {
    job->failures.clear();
    release(foreign);
    EXPECT_EQ(job->failures.size(), 1U) << foreign;
  }
}

TEST_F(SharedFetchTest, TakesItsOwnHintsAndHandsTheBatchOn) {
  open_odd({.slots = 24}, {{0, 12, 1}, {12, 12, 12}});
  Step& step = job->begin_step(0, 4);
  hint(step, 1, {4, 5, 6, 7, 8});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(pump());
  EXPECT_FALSE(pump(20ms));
  EXPECT_EQ(plan->offsets_started(), (std::vector<std::uint64_t>{offset(1, 5), offset(1, 7)}));
  EXPECT_EQ(fetch->count("hint_reads_total"), 2U);
}

// The end of a visit without an expert of this fetch comes by value: its object may be in use again.
TEST_F(SharedFetchTest, HearsOfVisitsThatAskNothing) {
  open_odd({.slots = 24}, {{0, 12, 1}, {12, 12, 12}});
  Step& step = job->begin_step(0, 4);
  hint(step, 1, {5});
  ASSERT_TRUE(pump());
  const auto tell = [&](std::uint32_t layer, bool last) {
    fetch->send(kDemand, {.type = MessageType::demand, .last = last, .layer = layer, .step_slot = step.slot,
                          .step_serial = step.serial, .object = nullptr});
  };
  tell(0, false);
  tell(0, true);
  EXPECT_EQ(fetch->count("wasted_hint_bytes_total"), 0U);
  tell(1, false);
  EXPECT_EQ(fetch->count("wasted_hint_bytes_total"), 0U) << "its demand may still come";
  tell(1, true);
  EXPECT_EQ(fetch->count("wasted_hint_bytes_total"), bytes);
  hint(step, 1, {7});
  EXPECT_FALSE(pump(20ms)) << "a hint for a visit that is over";
  EXPECT_EQ(fetch->count("demands_total"), 0U);
}

// With a slot for each of its records a fetch keeps them all.
TEST_F(SharedFetchTest, KeepsAllOfItsRecords) {
  open_odd({.slots = 30}, {{0, 12, 1}, {12, 18, 0}});  // 3 layers of 6 odd experts
  Step& step = job->begin_step(0, 4);
  for (std::uint32_t layer = 0; layer < 6; ++layer) {
    if (layer == 3) job->begin_step(0, 4);
    Visit& visit = job->begin_visit(step, layer % 2, layer % 3);
    delivered.clear();
    demand(visit, {1, 3, 5, 7, 9, 11}, true);
    pump_until_delivered(6);
    for (const Delivered& one : delivered) release(one.slot);
  }
  EXPECT_EQ(fetch->count("reads_total"), 18U);
  EXPECT_EQ(fetch->count("hits_total"), 18U);
}

// Random visits of two steps in flight, random hints, releases in random order: each demand is answered once
// with the right bytes, nothing waits for ever, and no record is read twice for a visit.
TEST_F(FetchTest, RandomVisits) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint32_t records = 36;
    const auto slots = static_cast<std::uint32_t>(1 + random() % records);
    const std::uint32_t transit = slots == records ? 0 : static_cast<std::uint32_t>(1 + random() % slots);
    delivered.clear();
    fetch.reset();
    open({.in_flight = 2, .slots = slots, .transit = transit}, {}, {{"lanes", "4"}});
    struct Running {
      Step* step = nullptr;
      std::uint32_t ordinal = 0;
      Visit* visit = nullptr;
      std::set<std::uint32_t> missing;   // demanded and not delivered
      bool complete = false;             // all of its demands were sent
      std::vector<std::uint32_t> leases;
    };
    Running running[2];
    // Steps are routed in the order of their serials: the first demand of a step comes before all of the next.
    auto begin_step = [&](std::uint32_t index) {
      Running& one = running[index];
      one.step = &job->begin_step(index, 4);
      one.visit = &job->begin_visit(*one.step, 0, 0);
      const auto expert = static_cast<std::uint32_t>(random() % 12);
      one.missing.insert(expert);
      demand(*one.visit, {expert}, false);
    };
    for (std::uint32_t i = 0; i < 2; ++i) begin_step(i);
    std::uint64_t turn = 0;
    for (int visits = 0; visits < 60;) {
      ASSERT_LT(++turn, 100'000U) << "seed " << seed << " hangs with " << slots << " slots, " << transit << " transit";
      Running& one = running[random() % 2];
      const std::uint32_t layer = one.ordinal;
      switch (random() % 4) {
        case 0:
          if (one.complete) break;
          if (one.visit == nullptr) one.visit = &job->begin_visit(*one.step, one.ordinal % 2, layer);
          {
            std::vector<std::uint32_t> experts;
            for (std::uint32_t expert = 0; expert < 12; ++expert) {
              const auto end = one.visit->experts + one.visit->expert_count;
              if (random() % 4 == 0 && std::find(one.visit->experts, end, expert) == end) experts.push_back(expert);
            }
            one.missing.insert(experts.begin(), experts.end());
            one.complete = random() % 2 == 0 && one.visit->expert_count + experts.size() > 0;
            if (!experts.empty() || one.complete) demand(*one.visit, experts, one.complete);
          }
          break;
        case 1: hint(*one.step, static_cast<std::uint32_t>(random() % 3), {static_cast<std::uint32_t>(random() % 12),
                                                                          static_cast<std::uint32_t>(random() % 12)});
          break;
        case 2: pump(0ms); break;
        default:
          // Compute works on a visit whose demands have all been sent.
          if (one.complete && !one.leases.empty()) {
            release(one.leases.back());
            one.leases.pop_back();
          }
          if (one.complete && one.missing.empty() && one.leases.empty()) {
            ++visits;
            one.visit = nullptr;
            one.complete = false;
            if (++one.ordinal == 3) {
              one.ordinal = 0;
              begin_step(one.step->slot);
            }
          }
      }
      for (const Delivered& got : delivered) {
        Running& owner = running[got.visit->step->slot];
        ASSERT_EQ(got.visit, owner.visit);
        ASSERT_EQ(owner.missing.erase(got.expert), 1U) << "answered twice";
        expect_record(got, got.visit->layer);
        owner.leases.push_back(got.slot);
      }
      delivered.clear();
    }
    EXPECT_EQ(fetch->count("bytes_read_total"), fetch->count("distinct_bytes_total")) << "seed " << seed;
    EXPECT_GT(fetch->count("reads_total"), 0U);
    // What still runs gets its completions before the slots go.
    for (Running& one : running) {
      if (one.visit != nullptr && !one.complete) demand(*one.visit, {}, true);
    }
  }
}

}  // namespace
}  // namespace colibri::testing
