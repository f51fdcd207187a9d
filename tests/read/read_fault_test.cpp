// Every kind of fault: what is retried, what is given up, and what a caller is told.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <thread>

#include "io/read/aligned_region.hpp"
#include "io/read/fault_backend.hpp"
#include "tests/read/read_fixture.hpp"

namespace colibri {
namespace {

using std::chrono::minutes;
using testing::Buffer;
using testing::Collector;
using testing::Log;
using testing::PatternFile;
using testing::request_for;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kChunk = 128 << 10;
constexpr std::uint64_t kEverlasting = UINT64_MAX;

class ReadFaultTest : public ::testing::TestWithParam<ReadKind> {
 protected:
  void SetUp() override {
    COLIBRI_SKIP_WITHOUT(GetParam());
    options_.kind = GetParam();
    options_.lanes = 1;  // the order of reads is then exact
    options_.log = log_.sink();
  }

  void open(std::vector<Fault> faults) {
    plan_ = std::make_shared<FaultPlan>(std::move(faults));
    options_.faults = plan_;
    backend_ = testing::open_or_fail(file_, options_, collector_);
    ASSERT_NE(backend_, nullptr);
  }

  // One record of 2 MiB at 1 MiB, checked, in two pieces.
  ReadCompletion read() {
    ReadRequest request = request_for(5, kMiB, 2 * kMiB, buffer_);
    request.chunk_hashes = hashes_;
    request.chunk_bytes = kChunk;
    request.payload_length = 2 * kMiB - 777;
    const std::size_t before = collector_.count();
    const Status status = backend_->submit(request);
    EXPECT_TRUE(status) << status.to_string();
    return collector_.wait(before + 1)[before];
  }

  void expect_good(std::uint32_t retries) {
    const ReadCompletion completion = read();
    EXPECT_TRUE(completion.status) << completion.status.to_string();
    EXPECT_EQ(completion.retries, retries);
    EXPECT_EQ(completion.bytes, 2 * kMiB);
    EXPECT_TRUE(buffer_.equals(file_, kMiB, 2 * kMiB));
  }

  void expect_failure(ErrorCode code, std::initializer_list<std::string> words) {
    const ReadCompletion completion = read();
    EXPECT_EQ(completion.status.code(), code);
    EXPECT_EQ(completion.bytes, 0u);
    const std::string text = completion.status.to_string();
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
    EXPECT_NE(text.find(file_.path().string()), std::string::npos) << text;
    EXPECT_EQ(completion.status.file(), file_.path().string());
    EXPECT_NE(text.find(", offset " + std::to_string(completion.status.offset()) + ","), std::string::npos)
        << text;
    EXPECT_NE(text.find("record at offset 1048576"), std::string::npos) << text;
  }

  const PatternFile file_{4 * kMiB};
  const Buffer buffer_{2 * kMiB};
  const std::vector<std::uint64_t> hashes_ = file_.hashes(kMiB, 2 * kMiB - 777, kChunk);
  Log log_;
  ReadBackendOptions options_;
  std::shared_ptr<FaultPlan> plan_;
  Collector collector_;
  std::unique_ptr<ReadBackend> backend_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ReadFaultTest, ::testing::Values(ReadKind::io_uring, ReadKind::pread),
                         [](const auto& info) { return testing::kind_name(info.param); });

TEST_P(ReadFaultTest, InterruptedReadsContinue) {
  open({{FaultKind::interrupted, 1, 5}});
  expect_good(5);
}

TEST_P(ReadFaultTest, ShortReadsContinueWithoutReadingTwice) {
  open({{FaultKind::short_read, 1, 9}});
  expect_good(0);
  EXPECT_EQ(backend_->stats().retried_bytes, 0u);
  // Half, a quarter, ... of the first piece, then one page, and at last the second piece.
  EXPECT_GE(plan_->offsets_started().size(), 10u);
}

TEST_P(ReadFaultTest, AgainBacksOffAndGoesOn) {
  open({{FaultKind::again, 1, 3}});
  expect_good(3);
}

TEST_P(ReadFaultTest, AgainWithoutEndFails) {
  open({{FaultKind::again, 1, kEverlasting}});
  expect_failure(ErrorCode::io, {"Resource temporarily unavailable"});
}

TEST_P(ReadFaultTest, IoErrorIsRetriedOnce) {
  open({{FaultKind::io_error}});
  expect_good(1);
  EXPECT_EQ(backend_->stats().retries, 1u);
  EXPECT_EQ(backend_->stats().retried_bytes, kMiB);
}

TEST_P(ReadFaultTest, IoErrorTwiceFailsAndTheNextRecordIsRead) {
  open({{FaultKind::io_error, 1, 2}});
  expect_failure(ErrorCode::io, {"Input/output error", "offset 1048576,"});
  // The second piece was dropped, not read: two reads in all, and the backend goes on.
  EXPECT_EQ(plan_->offsets_started().size(), 2u);
  expect_good(0);
}

TEST_P(ReadFaultTest, ABadSpotFailsOnlyTheRecordThatCoversIt) {
  options_.lanes = 8;
  open({{FaultKind::io_error, 1, kEverlasting, 2 * kMiB + 5}});
  expect_failure(ErrorCode::io, {"Input/output error", "offset 2097152,"});
  const Buffer other(kMiB);
  ASSERT_TRUE(backend_->submit(request_for(6, 3 * kMiB, kMiB, other)));
  EXPECT_TRUE(collector_.wait(2)[1].status);
  EXPECT_TRUE(other.equals(file_, 3 * kMiB, kMiB));
}

TEST_P(ReadFaultTest, WrongBytesAreReadAgainOnce) {
  open({{FaultKind::wrong_bytes}});
  expect_good(1);
}

TEST_P(ReadFaultTest, WrongBytesTwiceAreCorruptAtTheirChunk) {
  open({{FaultKind::wrong_bytes, 1, 2}});
  // The flipped byte is in the middle of the first piece of 1 MiB: its fifth chunk.
  expect_failure(ErrorCode::corrupt, {"offset " + std::to_string(kMiB + 4 * kChunk) + ",", "colibri verify"});
}

TEST_P(ReadFaultTest, SlowReadsAreOvertaken) {
  options_.lanes = 2;
  open({{FaultKind::slow, 1, 1, std::nullopt, std::chrono::milliseconds(300)}});
  const Buffer first(kPage);
  const Buffer second(kPage);
  ASSERT_TRUE(backend_->submit(request_for(1, 0, kPage, first)));
  ASSERT_TRUE(backend_->submit(request_for(2, kPage, kPage, second)));
  const auto completions = collector_.wait(2);
  for (const ReadCompletion& completion : completions) {
    EXPECT_TRUE(completion.status);
    if (completion.tag == 1) {
      EXPECT_GE(completion.seconds, 0.3);  // held back at least so long
    }
  }
  EXPECT_TRUE(first.equals(file_, 0, kPage));
  EXPECT_TRUE(second.equals(file_, kPage, kPage));
}

TEST_P(ReadFaultTest, HangingReadsWaitForTheirRelease) {
  open({{FaultKind::hang, 2}});
  std::thread releaser([this] {
    EXPECT_TRUE(plan_->wait_until_hanging(1, minutes(1)));
    EXPECT_EQ(collector_.count(), 0u);
    plan_->release();
  });
  expect_good(0);
  releaser.join();
}

TEST_P(ReadFaultTest, DirectRefusedAtTheFirstReadFallsToBufferedForGood) {
  options_.lanes = 4;  // several lanes may be refused at once
  options_.read_bytes = kChunk;
  open({{FaultKind::direct_refused, 1, kEverlasting}});
  if (backend_->description().find("buffered") != std::string_view::npos) {
    GTEST_SKIP() << "the file system of the temporary folder refuses O_DIRECT itself";
  }
  expect_good(0);
  EXPECT_NE(backend_->description().find(", buffered, 4 lanes"), std::string_view::npos);
  ASSERT_EQ(log_.lines().size(), 1u);
  const std::string line = log_.lines()[0];
  EXPECT_NE(line.find("at the first read (Invalid argument)"), std::string::npos) << line;
  EXPECT_NE(line.find(file_.path().string()), std::string::npos) << line;
  expect_good(0);
  EXPECT_EQ(log_.lines().size(), 1u);
}

TEST_P(ReadFaultTest, DirectRefusedThoughAskedForFails) {
  options_.direct = DirectIo::on;
  const std::filesystem::path paths[] = {file_.path()};
  if (!open_read_backend(paths, options_, collector_.callback())) GTEST_SKIP() << "O_DIRECT is refused here";
  open({{FaultKind::direct_refused}});
  expect_failure(ErrorCode::io, {"Invalid argument"});
  EXPECT_TRUE(log_.lines().empty());
}

TEST_P(ReadFaultTest, DirectRefusedAtOpenIsBufferedAndDropsThePageCache) {
  plan_ = std::make_shared<FaultPlan>();
  plan_->direct_open_error = EINVAL;
  options_.faults = plan_;
  backend_ = testing::open_or_fail(file_, options_, collector_);
  ASSERT_NE(backend_, nullptr);
  ASSERT_EQ(log_.lines().size(), 1u);
  EXPECT_NE(log_.lines()[0].find("at open"), std::string::npos);
  EXPECT_NE(backend_->description().find("buffered"), std::string_view::npos);
  expect_good(0);

  struct statfs system {};
  ASSERT_EQ(::statfs(file_.path().c_str(), &system), 0);
  constexpr decltype(system.f_type) kExt4 = 0xEF53;
  constexpr decltype(system.f_type) kXfs = 0x58465342;
  if (system.f_type != kExt4 && system.f_type != kXfs) {
    GTEST_SKIP() << "page cache not looked at: the temporary folder is neither ext4 nor xfs";
  }
  const int descriptor = ::open(file_.path().c_str(), O_RDONLY | O_CLOEXEC);
  void* map = ::mmap(nullptr, 2 * kMiB, PROT_READ, MAP_SHARED, descriptor, kMiB);
  ASSERT_NE(map, MAP_FAILED);
  std::vector<unsigned char> resident(2 * kMiB / kPage);
  ASSERT_EQ(::mincore(map, 2 * kMiB, resident.data()), 0);
  std::size_t pages = 0;
  for (const unsigned char page : resident) pages += page & 1;
  EXPECT_EQ(pages, 0u);
  ::munmap(map, 2 * kMiB);
  ::close(descriptor);
}

// The ladder from io_uring to the pool of threads, for each reason that systems give.
class RingRefusedTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Errors, RingRefusedTest, ::testing::Values(EPERM, ENOMEM, ENOSYS));

TEST_P(RingRefusedTest, FallsToPreadWithOneLine) {
  const PatternFile file(kMiB);
  Log log;
  ReadBackendOptions options;
  options.faults = std::make_shared<FaultPlan>();
  options.faults->ring_setup_error = GetParam();
  options.log = log.sink();
  Collector collector;
  auto backend = testing::open_or_fail(file, options, collector);
  ASSERT_NE(backend, nullptr);
  EXPECT_EQ(backend->description().substr(0, 6), "pread,");
  EXPECT_NE(backend->description().find("8 lanes"), std::string_view::npos);
  ASSERT_EQ(log.lines().size(), 1u);
  EXPECT_EQ(log.lines()[0].find("io_uring was refused: "), 0u) << log.lines()[0];
  const Buffer buffer(kMiB);
  ASSERT_TRUE(backend->submit(request_for(1, 0, kMiB, buffer)));
  EXPECT_TRUE(collector.wait(1)[0].status);
  EXPECT_TRUE(buffer.equals(file, 0, kMiB));

  options.kind = ReadKind::io_uring;  // asked for by name: no silent substitute
  const std::filesystem::path paths[] = {file.path()};
  EXPECT_EQ(open_read_backend(paths, options, collector.callback()).status().code(), ErrorCode::unsupported);
}

TEST(RegistrationRefused, ReadsUnregisteredWithOneLine) {
  COLIBRI_SKIP_WITHOUT(ReadKind::io_uring);
  const PatternFile file(kMiB);
  auto region = AlignedRegion::create(kMiB);
  ASSERT_TRUE(region);
  Log log;
  ReadBackendOptions options;
  options.kind = ReadKind::io_uring;
  options.registered_region = region->bytes();
  options.faults = std::make_shared<FaultPlan>();
  options.faults->registration_error = ENOMEM;
  options.log = log.sink();
  Collector collector;
  auto backend = testing::open_or_fail(file, options, collector);
  ASSERT_NE(backend, nullptr);
  ASSERT_EQ(log.lines().size(), 1u);
  EXPECT_NE(log.lines()[0].find("ulimit -l"), std::string::npos);
  const Buffer buffer(kMiB);
  ASSERT_TRUE(backend->submit(request_for(1, 0, kMiB, buffer)));
  EXPECT_TRUE(collector.wait(1)[0].status);
}

}  // namespace
}  // namespace colibri
