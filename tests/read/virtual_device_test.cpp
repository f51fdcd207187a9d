// Reads on a virtual clock: exact ends, the order of the queue, and what the files hold.
#include "io/read/virtual_device.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "io/read/fault_backend.hpp"
#include "tests/read/read_fixture.hpp"

namespace colibri {
namespace {

using std::chrono::microseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using testing::Buffer;
using testing::Collector;
using testing::PatternFile;
using testing::request_for;

constexpr std::uint64_t kPage = 4096;
constexpr DeviceLaw kByteANanosecond{.bytes_per_second = 1'000'000'000};

class VirtualDeviceTest : public ::testing::Test {
 protected:
  void open(std::vector<DeviceLaw> drives, VirtualContents contents = VirtualContents::files,
            std::uint32_t files = 1) {
    device_ = std::make_shared<VirtualDevice>(drives, contents);
    options_.virtual_device = device_;
    const std::vector<std::filesystem::path> paths(files, file_.path());
    auto opened = open_read_backend(paths, options_, collector_.callback());
    ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
    backend_ = std::move(opened).value();
  }
  // `pages` pages at page `tag`, to the same place in memory.
  Status submit(std::uint64_t tag, std::uint64_t pages, bool demand = true, std::uint32_t file = 0) {
    ReadRequest request = request_for(tag, tag * kPage, pages * kPage, buffer_, demand);
    request.destination += tag * kPage;
    request.file = file;
    return backend_->submit(request);
  }
  // When each completion came, as {tag, nanoseconds}.
  std::vector<std::pair<std::uint64_t, std::int64_t>> run() {
    std::vector<std::pair<std::uint64_t, std::int64_t>> ends;
    std::size_t seen = collector_.count();
    while (device_->advance()) {
      for (const auto all = collector_.wait(seen); seen < collector_.count(); ++seen) {
        const ReadCompletion completion = collector_.wait(seen + 1)[seen];
        EXPECT_TRUE(completion.status) << completion.status.to_string();
        ends.emplace_back(completion.tag, device_->now().count());
      }
    }
    return ends;
  }
  using Ends = std::vector<std::pair<std::uint64_t, std::int64_t>>;

  const PatternFile file_{64 * kPage};
  const Buffer buffer_{64 * kPage};
  ReadBackendOptions options_;
  std::shared_ptr<VirtualDevice> device_;
  Collector collector_;
  std::unique_ptr<ReadBackend> backend_;
};

TEST_F(VirtualDeviceTest, ReadsEndWhenTheLawSays) {
  open({kByteANanosecond});
  ASSERT_TRUE(submit(0, 4));
  ASSERT_TRUE(submit(4, 2));
  EXPECT_EQ(collector_.count(), 0U);  // nothing happens by itself
  EXPECT_EQ(run(), (Ends{{0, 16'384}, {4, 24'576}}));
  EXPECT_TRUE(buffer_.equals(file_, 0, 6 * kPage));
  EXPECT_FALSE(device_->advance());
  EXPECT_EQ(backend_->stats().busy_seconds, 24'576e-9);
  EXPECT_EQ(backend_->description().substr(0, 13), "virtual clock");
}

TEST_F(VirtualDeviceTest, DemandsOvertakeHintsThatAreNotInFlight) {
  options_.lanes = 2;
  open({kByteANanosecond});
  for (const std::uint64_t tag : {0, 1, 2, 3}) ASSERT_TRUE(submit(tag, 1, /*demand=*/false));
  ASSERT_TRUE(submit(9, 1));
  EXPECT_TRUE(backend_->promote(3));
  EXPECT_EQ(run(), (Ends{{0, 4096}, {1, 8192}, {9, 12'288}, {3, 16'384}, {2, 20'480}}));
}

TEST_F(VirtualDeviceTest, PiecesOfARecordUseTheChannels) {
  options_.read_bytes = kPage;
  open({{.bytes_per_second = 1'000'000'000, .latency = microseconds(10), .channels = 4}});
  ASSERT_TRUE(submit(0, 8));  // two rounds of four pieces, a page takes 16,384 ns of a channel
  EXPECT_EQ(run(), (Ends{{0, 10'000 + 2 * 16'384}}));
  EXPECT_TRUE(buffer_.equals(file_, 0, 8 * kPage));
}

TEST_F(VirtualDeviceTest, TimeThatPassesDeliversWhatEndsMeanwhile) {
  open({kByteANanosecond});
  ASSERT_TRUE(submit(0, 1));
  ASSERT_TRUE(submit(1, 1));
  device_->pass(nanoseconds(4095));
  EXPECT_EQ(collector_.count(), 0U);
  device_->pass(nanoseconds(1));
  EXPECT_EQ(collector_.count(), 1U);
  device_->pass(nanoseconds(100'000));
  EXPECT_EQ(collector_.count(), 2U);
  EXPECT_EQ(device_->now().count(), 104'096);
  const VirtualDevice::Usage usage = device_->usage(0);
  EXPECT_EQ(usage.busy.count(), 8192);
  EXPECT_EQ(usage.reads, 2U);
  EXPECT_EQ(usage.bytes, 2 * kPage);
}

TEST_F(VirtualDeviceTest, FilesLieOnTheirDrives) {
  open({kByteANanosecond, {.bytes_per_second = 500'000'000}}, VirtualContents::files, 2);
  ASSERT_TRUE(submit(0, 1, true, 0));
  ASSERT_TRUE(submit(1, 1, true, 1));
  ASSERT_TRUE(submit(2, 1, true, 0));
  EXPECT_EQ(run(), (Ends{{0, 4096}, {1, 8192}, {2, 8192}}));
  EXPECT_EQ(device_->usage(0).bytes, 2 * kPage);
  EXPECT_EQ(device_->usage(1).bytes, kPage);
}

TEST_F(VirtualDeviceTest, ALongLineOfOneDriveLeavesLanesToTheOther) {
  options_.lanes = 4;
  open({kByteANanosecond, kByteANanosecond}, VirtualContents::files, 2);
  for (std::uint64_t tag = 0; tag < 16; ++tag) ASSERT_TRUE(submit(tag, 1, true, 0));
  for (std::uint64_t tag = 16; tag < 32; ++tag) ASSERT_TRUE(submit(tag, 1, true, 1));
  EXPECT_EQ(run().size(), 32U);
  // All lanes are with the first drive when the second gets work; the first one that is free goes there.
  EXPECT_EQ(device_->now().count(), 17 * 4096);
  EXPECT_EQ(device_->usage(1).busy.count(), 16 * 4096);
}

TEST_F(VirtualDeviceTest, DrivesOfDifferentRatesGetLanesAlike) {
  options_.lanes = 8;
  open({kByteANanosecond, {.bytes_per_second = 250'000'000}}, VirtualContents::files, 2);
  for (std::uint64_t tag = 0; tag < 32; ++tag) ASSERT_TRUE(submit(tag, 1, true, tag % 4 == 0 ? 1 : 0));
  EXPECT_EQ(run().size(), 32U);
  // 24 pages of the fast one and 8 of the slow one: neither waits for the other.
  EXPECT_EQ(device_->usage(0).busy.count(), 24 * 4096);
  EXPECT_EQ(device_->now().count(), 8 * 4 * 4096);
}

TEST_F(VirtualDeviceTest, CopiesShareTheReads) {
  options_.copies = 2;
  open({kByteANanosecond, kByteANanosecond}, VirtualContents::files, 2);
  for (std::uint64_t tag = 0; tag < 16; ++tag) ASSERT_TRUE(submit(tag, 1));
  EXPECT_EQ(run().size(), 16U);
  EXPECT_TRUE(buffer_.equals(file_, 0, 16 * kPage));
  EXPECT_EQ(device_->now().count(), 8 * 4096);
  EXPECT_EQ(device_->usage(0).bytes, 8 * kPage);
  EXPECT_EQ(device_->usage(1).bytes, 8 * kPage);
  EXPECT_EQ(submit(20, 1, true, 1).code(), ErrorCode::invalid_input);  // there is one file, twice
}

// 1 GB/s and 0.25 GB/s: four of five pages come from the faster one.
TEST_F(VirtualDeviceTest, TheFasterCopyIsReadMore) {
  options_.copies = 2;
  options_.lanes = 2;
  open({kByteANanosecond, {.bytes_per_second = 250'000'000}}, VirtualContents::files, 2);
  for (std::uint64_t tag = 0; tag < 40; ++tag) ASSERT_TRUE(submit(tag, 1));
  EXPECT_EQ(run().size(), 40U);
  EXPECT_EQ(device_->usage(0).reads, 32U);
  EXPECT_EQ(device_->usage(1).reads, 8U);
}

TEST_F(VirtualDeviceTest, WhatIsDamagedInOneCopyIsReadFromAnother) {
  const PatternFile damaged(64 * kPage, /*seed=*/2);
  for (const bool damaged_first : {true, false}) {
    device_ = std::make_shared<VirtualDevice>(std::vector<DeviceLaw>{kByteANanosecond, kByteANanosecond});
    options_.virtual_device = device_;
    options_.copies = 2;
    options_.lanes = 1;
    const std::filesystem::path paths[] = {damaged_first ? damaged.path() : file_.path(),
                                           damaged_first ? file_.path() : damaged.path()};
    Collector collector;
    const auto backend = open_read_backend(paths, options_, collector.callback());
    ASSERT_TRUE(backend.is_ok());
    const std::vector<std::uint64_t> hashes = file_.hashes(0, kPage, kPage);
    ReadRequest request = request_for(0, 0, kPage, buffer_);
    request.chunk_hashes = hashes;
    request.chunk_bytes = request.payload_length = kPage;
    ASSERT_TRUE((*backend)->submit(request));
    while (device_->advance()) {
    }
    const ReadCompletion completion = collector.wait(1)[0];
    EXPECT_TRUE(completion.status) << completion.status.to_string();
    EXPECT_EQ(completion.retries, damaged_first ? 1U : 0U);
    EXPECT_TRUE(buffer_.equals(file_, 0, kPage));
  }
}

TEST_F(VirtualDeviceTest, CopiesMustBeWholeSets) {
  options_.copies = 2;
  const std::filesystem::path paths[] = {file_.path()};
  EXPECT_FALSE(open_read_backend(paths, options_, collector_.callback()).is_ok());
  options_.copies = 0;
  EXPECT_FALSE(open_read_backend(paths, options_, collector_.callback()).is_ok());
}

// Every piece of at least `read_bytes`, as many as that allows, none twice as long.
TEST_F(VirtualDeviceTest, PiecesAreNeitherShortNorTwiceAsLong) {
  for (std::uint64_t least = 1; least <= 7; ++least) {
    options_.read_bytes = least * kPage;
    for (std::uint64_t pages = 1; pages <= 40; ++pages) {
      const auto plan = std::make_shared<FaultPlan>();
      options_.faults = plan;
      open({kByteANanosecond});
      ASSERT_TRUE(submit(0, pages));
      run();
      std::vector<std::uint64_t> offsets = plan->offsets_started();
      std::sort(offsets.begin(), offsets.end());
      offsets.push_back(pages * kPage);
      EXPECT_EQ(offsets.size() - 1, std::max<std::uint64_t>(1, pages / least)) << least << ", " << pages;
      for (std::size_t i = 0; i + 1 < offsets.size() && pages >= least; ++i) {
        EXPECT_GE(offsets[i + 1] - offsets[i], least * kPage) << least << ", " << pages;
        EXPECT_LT(offsets[i + 1] - offsets[i], 2 * least * kPage) << least << ", " << pages;
      }
    }
  }
}

TEST_F(VirtualDeviceTest, ALimitOnTheBandwidthHoldsAndCanBeChanged) {
  options_.bandwidth_limit = 100'000'000;
  open({kByteANanosecond});
  ASSERT_TRUE(submit(0, 1));
  ASSERT_TRUE(submit(1, 1));
  EXPECT_EQ(run(), (Ends{{0, 40'960}, {1, 81'920}}));
  backend_->limit_bandwidth(0);
  ASSERT_TRUE(submit(2, 1));
  EXPECT_EQ(run(), (Ends{{2, 81'920 + 4096}}));
}

TEST_F(VirtualDeviceTest, ChecksumsAreComparedAndARetryTakesItsTime) {
  open({kByteANanosecond});
  std::vector<std::uint64_t> hashes = file_.hashes(0, kPage, kPage);
  ReadRequest request = request_for(0, 0, kPage, buffer_);
  request.chunk_hashes = hashes;
  request.chunk_bytes = request.payload_length = kPage;
  ASSERT_TRUE(backend_->submit(request));
  EXPECT_EQ(run(), (Ends{{0, 4096}}));
  hashes[0] ^= 1;
  ASSERT_TRUE(backend_->submit(request));
  while (device_->advance()) {
  }
  EXPECT_EQ(collector_.wait(2)[1].status.code(), ErrorCode::corrupt);
  EXPECT_EQ(device_->now().count(), 3 * 4096);
}

TEST_F(VirtualDeviceTest, UntouchedContentsReadAndCheckNothing) {
  open({kByteANanosecond}, VirtualContents::untouched);
  const std::uint64_t wrong[] = {1};
  ReadRequest request = request_for(0, 0, kPage, buffer_);
  request.chunk_hashes = wrong;
  request.chunk_bytes = request.payload_length = kPage;
  ASSERT_TRUE(backend_->submit(request));
  EXPECT_EQ(run(), (Ends{{0, 4096}}));
  EXPECT_EQ(buffer_.data()[0], std::byte{0xEE});
}

TEST_F(VirtualDeviceTest, FaultsComeOnTopAndAreRetriedInVirtualTime) {
  options_.faults = std::make_shared<FaultPlan>(std::vector<Fault>{{FaultKind::io_error}});
  open({kByteANanosecond});
  ASSERT_TRUE(submit(0, 1));
  EXPECT_EQ(run(), (Ends{{0, 2 * 4096}}));
}

TEST_F(VirtualDeviceTest, CancelledReadsEndWithoutTakingTime) {
  options_.lanes = 1;
  open({kByteANanosecond});
  ASSERT_TRUE(submit(0, 1));
  ASSERT_TRUE(submit(1, 1, false));
  EXPECT_TRUE(backend_->cancel(1));
  ASSERT_TRUE(device_->advance());
  EXPECT_EQ(collector_.wait(1)[0].status.code(), ErrorCode::cancelled);
  EXPECT_EQ(device_->now().count(), 0);
  EXPECT_EQ(run(), (Ends{{0, 4096}}));
}

TEST_F(VirtualDeviceTest, ClosingMovesTheClockItself) {
  options_.lanes = 1;
  open({kByteANanosecond});
  for (const std::uint64_t tag : {0, 1, 2}) ASSERT_TRUE(submit(tag, 1));
  EXPECT_TRUE(backend_->close(minutes(1)));
  EXPECT_EQ(collector_.count(), 3U);
  EXPECT_EQ(device_->now().count(), 4096);
  backend_.reset();
  EXPECT_FALSE(device_->advance());
}

TEST_F(VirtualDeviceTest, SeveralBackendsShareTheClockAndTheDrive) {
  open({kByteANanosecond});
  Collector other;
  const std::filesystem::path paths[] = {file_.path()};
  auto second = open_read_backend(paths, options_, other.callback());
  ASSERT_TRUE(second.is_ok());
  ASSERT_TRUE(submit(0, 1));
  ASSERT_TRUE((*second)->submit(request_for(5, 0, kPage, buffer_)));
  EXPECT_EQ(run(), (Ends{{0, 4096}}));
  EXPECT_EQ(other.count(), 1U);
  EXPECT_EQ(device_->now().count(), 8192);
}

TEST_F(VirtualDeviceTest, CannotBeHeldBackInRealTime) {
  options_.virtual_device = std::make_shared<VirtualDevice>(std::vector<DeviceLaw>{kByteANanosecond});
  options_.drives = {std::make_shared<DeviceModel>(kByteANanosecond)};
  const std::filesystem::path paths[] = {file_.path()};
  const auto opened = open_read_backend(paths, options_, collector_.callback());
  ASSERT_FALSE(opened.is_ok());
  EXPECT_EQ(opened.status().code(), ErrorCode::invalid_input);
}

}  // namespace
}  // namespace colibri
