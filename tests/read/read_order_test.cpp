// The queue of a backend: bounds, priority, promotion, cancellation and closing. Order is
// proven with a gate (one lane whose read hangs until released), never with timing, and
// observed where reads start: completions may overtake each other on their way.
#include <gtest/gtest.h>

#include <thread>

#include "io/read/fault_backend.hpp"
#include "tests/read/read_fixture.hpp"

namespace colibri {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using testing::Buffer;
using testing::Collector;
using testing::PatternFile;
using testing::request_for;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kEverlasting = UINT64_MAX;

class ReadOrderTest : public ::testing::TestWithParam<ReadKind> {
 protected:
  void SetUp() override {
    COLIBRI_SKIP_WITHOUT(GetParam());
    options_.kind = GetParam();
    options_.faults = plan_;
    options_.lanes = 1;
  }
  void open() {
    backend_ = testing::open_or_fail(file_, options_, collector_);
    ASSERT_NE(backend_, nullptr);
  }
  // Submits reads of 4 pages with the tag as their place in file and memory.
  Status submit(std::uint64_t tag, bool demand) {
    ReadRequest request = request_for(tag, tag * 4 * kPage, 4 * kPage, buffer_, demand);
    request.destination += tag * 4 * kPage;
    return backend_->submit(request);
  }
  // The tags of `count` reads in the order in which they were started, once all are complete.
  // Pieces that follow each other in one record count once.
  std::vector<std::uint64_t> tags(std::size_t count) {
    for (const ReadCompletion& completion : collector_.wait(count)) EXPECT_TRUE(completion.status);
    std::vector<std::uint64_t> tags;
    for (const std::uint64_t offset : plan_->offsets_started()) {
      const std::uint64_t tag = offset / (4 * kPage);
      if (tags.empty() || tags.back() != tag) tags.push_back(tag);
    }
    return tags;
  }

  const PatternFile file_{256 * kPage};
  const Buffer buffer_{256 * kPage};
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>(std::vector<Fault>{{FaultKind::hang}});
  ReadBackendOptions options_;
  Collector collector_;
  std::unique_ptr<ReadBackend> backend_;  // last: its threads use the others
};

INSTANTIATE_TEST_SUITE_P(Kinds, ReadOrderTest, ::testing::Values(ReadKind::io_uring, ReadKind::pread),
                         [](const auto& info) { return testing::kind_name(info.param); });

TEST_P(ReadOrderTest, DemandsOvertakeHints) {
  open();
  ASSERT_TRUE(submit(0, false));
  ASSERT_TRUE(plan_->wait_until_hanging(1, minutes(1)));
  ASSERT_TRUE(submit(1, false));
  ASSERT_TRUE(submit(2, false));
  ASSERT_TRUE(submit(3, true));
  ASSERT_TRUE(submit(4, true));
  EXPECT_EQ(backend_->stats().queued, 4u);
  EXPECT_EQ(backend_->stats().in_flight, 1u);
  plan_->release();
  EXPECT_EQ(tags(5), (std::vector<std::uint64_t>{0, 3, 4, 1, 2}));
  EXPECT_TRUE(buffer_.equals(file_, 0, 20 * kPage));
}

TEST_P(ReadOrderTest, DemandsOvertakeTheRestOfAHintThatIsPartlyRead) {
  options_.read_bytes = kPage;
  open();
  ASSERT_TRUE(submit(0, false));  // four pieces; the first hangs
  ASSERT_TRUE(plan_->wait_until_hanging(1, minutes(1)));
  ASSERT_TRUE(submit(1, true));
  EXPECT_FALSE(backend_->cancel(0));  // its destination is in use
  plan_->release();
  EXPECT_EQ(tags(2), (std::vector<std::uint64_t>{0, 1, 0}));
  EXPECT_TRUE(buffer_.equals(file_, 0, 8 * kPage));
}

TEST_P(ReadOrderTest, PromotedHintsBecomeDemands) {
  open();
  ASSERT_TRUE(submit(0, false));
  ASSERT_TRUE(plan_->wait_until_hanging(1, minutes(1)));
  ASSERT_TRUE(submit(1, false));
  ASSERT_TRUE(submit(2, false));
  ASSERT_TRUE(submit(3, true));
  EXPECT_TRUE(backend_->promote(2));
  EXPECT_FALSE(backend_->promote(2));   // is a demand already
  EXPECT_FALSE(backend_->promote(0));   // is being read
  EXPECT_FALSE(backend_->promote(77));  // never was
  plan_->release();
  EXPECT_EQ(tags(4), (std::vector<std::uint64_t>{0, 3, 2, 1}));
}

TEST_P(ReadOrderTest, QueuedReadsCanBeCancelled) {
  open();
  ASSERT_TRUE(submit(0, true));
  ASSERT_TRUE(plan_->wait_until_hanging(1, minutes(1)));
  ASSERT_TRUE(submit(1, true));
  ASSERT_TRUE(submit(2, false));
  ASSERT_TRUE(submit(3, false));
  EXPECT_TRUE(backend_->cancel(1));
  EXPECT_TRUE(backend_->cancel(3));
  EXPECT_FALSE(backend_->cancel(3));
  EXPECT_FALSE(backend_->cancel(0));
  // Delivered while the lane is still hanging.
  const auto cancelled = collector_.wait(2);
  EXPECT_EQ(cancelled[0].tag, 1u);
  EXPECT_EQ(cancelled[1].tag, 3u);
  for (const ReadCompletion& completion : cancelled) {
    EXPECT_EQ(completion.status.code(), ErrorCode::cancelled);
    EXPECT_EQ(completion.bytes, 0u);
  }
  plan_->release();
  const auto all = collector_.wait(4);
  EXPECT_EQ(all[2].tag + all[3].tag, 2u);  // 0 and 2, in any order
  EXPECT_TRUE(all[2].status);
  EXPECT_TRUE(all[3].status);
  EXPECT_EQ(buffer_.data()[4 * kPage], std::byte{0xEE});  // never read
  EXPECT_EQ(backend_->stats().cancelled, 2u);
}

TEST_P(ReadOrderTest, MaxOutstandingIsEnforced) {
  options_.max_outstanding = 3;
  open();
  ASSERT_TRUE(submit(0, true));
  ASSERT_TRUE(plan_->wait_until_hanging(1, minutes(1)));
  ASSERT_TRUE(submit(1, true));
  ASSERT_TRUE(submit(2, false));
  const Status refused = submit(3, true);
  EXPECT_EQ(refused.code(), ErrorCode::out_of_memory);
  EXPECT_NE(refused.to_string().find("the limit is 3"), std::string::npos) << refused.to_string();
  plan_->release();
  collector_.wait(3);
  ASSERT_TRUE(submit(3, true));
  EXPECT_EQ(tags(4), (std::vector<std::uint64_t>{0, 1, 2, 3}));
}

TEST_P(ReadOrderTest, BytesInFlightAreBounded) {
  plan_ = std::make_shared<FaultPlan>(std::vector<Fault>{{FaultKind::hang, 1, kEverlasting}});
  options_.faults = plan_;
  options_.lanes = 16;
  options_.inflight_bytes = 12 * kPage;  // three reads of four pages
  open();
  for (std::uint64_t tag = 0; tag < 10; ++tag) ASSERT_TRUE(submit(tag, true));
  ASSERT_TRUE(plan_->wait_until_hanging(3, minutes(1)));
  // Every submit above has issued what it may: no fourth read was started.
  EXPECT_EQ(plan_->offsets_started().size(), 3u);
  EXPECT_EQ(backend_->stats().in_flight, 3u);
  plan_->release();
  collector_.wait(10);
  EXPECT_TRUE(buffer_.equals(file_, 0, 40 * kPage));
}

TEST_P(ReadOrderTest, PiecesOfOneRecordUseSeveralLanes) {
  plan_ = std::make_shared<FaultPlan>(std::vector<Fault>{{FaultKind::hang, 1, kEverlasting}});
  options_.faults = plan_;
  options_.lanes = 4;
  options_.read_bytes = kPage;
  open();
  ASSERT_TRUE(submit(0, true));
  EXPECT_TRUE(plan_->wait_until_hanging(4, minutes(1)));
  plan_->release();
  collector_.wait(1);
  EXPECT_TRUE(buffer_.equals(file_, 0, 4 * kPage));
}

TEST_P(ReadOrderTest, CloseCancelsTheQueueAndWaitsForTheRest) {
  options_.read_bytes = kPage;
  open();
  ASSERT_TRUE(submit(0, true));  // partly issued: one piece of four
  ASSERT_TRUE(plan_->wait_until_hanging(1, minutes(1)));
  ASSERT_TRUE(submit(1, true));
  ASSERT_TRUE(submit(2, false));
  EXPECT_FALSE(backend_->close(milliseconds(1)));
  EXPECT_EQ(submit(3, true).code(), ErrorCode::cancelled);
  collector_.wait(2);  // the queued ones; the hanging one is still out
  EXPECT_EQ(backend_->stats().in_flight, 1u);
  plan_->release();
  EXPECT_TRUE(backend_->close(minutes(1)));
  const auto completions = collector_.wait(3);
  EXPECT_EQ(completions[2].tag, 0u);
  for (const ReadCompletion& completion : completions) {
    EXPECT_EQ(completion.status.code(), ErrorCode::cancelled);
  }
}

TEST_P(ReadOrderTest, DestructionWaitsForReadsInFlight) {
  open();
  for (std::uint64_t tag = 0; tag < 20; ++tag) ASSERT_TRUE(submit(tag, tag % 2 == 0));
  ASSERT_TRUE(plan_->wait_until_hanging(1, minutes(1)));
  std::thread closer([&] { backend_.reset(); });
  collector_.wait(19);  // the queued ones, cancelled by the destructor
  EXPECT_EQ(plan_->hanging(), 1u);
  plan_->release();
  closer.join();
  const auto completions = collector_.wait(20);
  EXPECT_EQ(completions.size(), 20u);
  EXPECT_EQ(completions[19].tag, 0u);
  EXPECT_TRUE(completions[19].status);
}

TEST_P(ReadOrderTest, DestructionUnderLoadDeliversEachReadOnce) {
  plan_->release();
  options_.lanes = 4;
  options_.read_bytes = kPage;
  for (int round = 0; round < 20; ++round) {
    Collector collector;
    auto backend = testing::open_or_fail(file_, options_, collector);
    ASSERT_NE(backend, nullptr);
    for (std::uint64_t tag = 0; tag < 60; ++tag) {
      ReadRequest request = request_for(tag, tag * 4 * kPage, 4 * kPage, buffer_, tag % 3 == 0);
      request.destination += tag * 4 * kPage;
      ASSERT_TRUE(backend->submit(request));
    }
    backend.reset();
    EXPECT_EQ(collector.count(), 60u);
  }
}

}  // namespace
}  // namespace colibri
