// Reads that are held back in real time. That a read is not too early is exact; how late a
// loaded machine delivers it is nobody's promise, so no test looks at that.
#include <gtest/gtest.h>

#include <thread>

#include "io/read/device_model.hpp"
#include "io/read/fault_backend.hpp"
#include "tests/read/read_fixture.hpp"

namespace colibri {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using testing::Buffer;
using testing::Collector;
using testing::PatternFile;
using testing::request_for;

constexpr std::uint64_t kPage = 4096;

class ThrottleTest : public ::testing::TestWithParam<ReadKind> {
 protected:
  void SetUp() override {
    COLIBRI_SKIP_WITHOUT(GetParam());
    options_.kind = GetParam();
  }
  void open() {
    backend_ = testing::open_or_fail(file_, options_, collector_);
    ASSERT_NE(backend_, nullptr);
  }
  Status submit(std::uint64_t tag) {
    ReadRequest request = request_for(tag, tag * kPage, kPage, buffer_);
    request.destination += tag * kPage;
    return backend_->submit(request);
  }
  void expect_good(std::size_t count) {
    for (const ReadCompletion& completion : collector_.wait(count)) {
      EXPECT_TRUE(completion.status) << completion.status.to_string();
    }
    EXPECT_TRUE(buffer_.equals(file_, 0, count * kPage));
  }

  const PatternFile file_{64 * kPage};
  const Buffer buffer_{64 * kPage};
  ReadBackendOptions options_;
  Collector collector_;
  std::unique_ptr<ReadBackend> backend_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ThrottleTest, ::testing::Values(ReadKind::io_uring, ReadKind::pread),
                         [](const auto& info) { return testing::kind_name(info.param); });

TEST_P(ThrottleTest, ReadsEndNoSoonerThanOnTheSlowerDrive) {
  options_.drives = {
      std::make_shared<DeviceModel>(DeviceLaw{.bytes_per_second = 100 * kPage, .latency = milliseconds(20)})};
  open();
  const Clock::time_point begin = Clock::now();
  for (std::uint64_t tag = 0; tag < 10; ++tag) ASSERT_TRUE(submit(tag));
  collector_.wait(1);
  EXPECT_GE(Clock::now() - begin, milliseconds(30));
  expect_good(10);
  EXPECT_GE(Clock::now() - begin, milliseconds(120));
}

TEST_P(ThrottleTest, ALimitHoldsBackAndWithoutItReadsInFlightEnd) {
  options_.bandwidth_limit = 1;  // a page takes more than an hour
  open();
  ASSERT_TRUE(submit(0));
  ASSERT_TRUE(submit(1));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(collector_.count(), 0U);
  backend_->limit_bandwidth(0);
  expect_good(2);
}

// What a limit holds back is no sign of a drive that hangs.
TEST_P(ThrottleTest, AClosingBackendKeepsToNoLimit) {
  options_.bandwidth_limit = 1;
  open();
  ASSERT_TRUE(submit(0));
  ASSERT_TRUE(submit(1));
  EXPECT_TRUE(backend_->close(std::chrono::seconds(30)));
  EXPECT_EQ(collector_.count(), 2U);
}

TEST_P(ThrottleTest, BackendsOnOneDriveShareIt) {
  options_.drives = {std::make_shared<DeviceModel>(DeviceLaw{.bytes_per_second = 100 * kPage})};
  open();
  Collector others;
  const auto second = testing::open_or_fail(file_, options_, others);
  ASSERT_NE(second, nullptr);
  const Clock::time_point begin = Clock::now();
  for (std::uint64_t tag = 0; tag < 5; ++tag) {
    ASSERT_TRUE(submit(tag));
    ReadRequest request = request_for(tag, 0, kPage, buffer_);
    request.destination += (32 + tag) * kPage;
    ASSERT_TRUE(second->submit(request));
  }
  expect_good(5);
  others.wait(5);
  EXPECT_GE(Clock::now() - begin, milliseconds(100));
}

TEST_P(ThrottleTest, FaultsAreRetriedThroughIt) {
  options_.drives = {std::make_shared<DeviceModel>(DeviceLaw{.latency = milliseconds(5)})};
  options_.faults = std::make_shared<FaultPlan>(
      std::vector<Fault>{{FaultKind::io_error}, {FaultKind::slow, 2}, {FaultKind::again, 3}});
  options_.lanes = 1;
  open();
  for (std::uint64_t tag = 0; tag < 4; ++tag) ASSERT_TRUE(submit(tag));
  expect_good(4);
}

}  // namespace
}  // namespace colibri
