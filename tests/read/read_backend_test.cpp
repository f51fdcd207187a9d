// Reads through each backend, direct and buffered, against the bytes that were written.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "io/read/aligned_region.hpp"
#include "tests/read/read_fixture.hpp"

namespace colibri {
namespace {

using testing::Buffer;
using testing::Collector;
using testing::PatternFile;
using testing::request_for;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMiB = 1 << 20;

struct Way {
  ReadKind kind;
  DirectIo direct;
};

class ReadBackendTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override { COLIBRI_SKIP_WITHOUT(GetParam().kind); }
  ReadBackendOptions options() const {
    ReadBackendOptions options;
    options.kind = GetParam().kind;
    options.direct = GetParam().direct;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, ReadBackendTest,
                         ::testing::Values(Way{ReadKind::io_uring, DirectIo::automatic},
                                           Way{ReadKind::io_uring, DirectIo::off},
                                           Way{ReadKind::pread, DirectIo::automatic},
                                           Way{ReadKind::pread, DirectIo::off}),
                         [](const auto& info) {
                           return testing::kind_name(info.param.kind) +
                                  (info.param.direct == DirectIo::off ? "_buffered" : "_direct");
                         });

TEST_P(ReadBackendTest, RandomReadsOfManySizesWithChecksums) {
  const PatternFile file(24 * kMiB);
  Collector collector;
  ReadBackendOptions options = this->options();
  options.max_outstanding = 200;
  options.inflight_bytes = 4 * kMiB;
  auto backend = testing::open_or_fail(file, options, collector);
  ASSERT_NE(backend, nullptr);

  std::mt19937_64 random(7);
  std::vector<Buffer> buffers;
  std::vector<ReadRequest> requests;
  std::vector<std::vector<std::uint64_t>> hashes(200);
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    // From one page to 5 MiB, most of them small; every third with checksums.
    const std::uint64_t pages = i % 20 == 0 ? 1 + random() % 1280 : 1 + random() % 64;
    const std::uint64_t offset = random() % (file.bytes().size() / kPage - pages + 1) * kPage;
    buffers.emplace_back(pages * kPage);
    requests.push_back(request_for(i, offset, pages * kPage, buffers.back(), random() % 2 == 0));
    if (i % 3 == 0) {
      ReadRequest& request = requests.back();
      request.payload_length = request.length - random() % kPage;
      request.chunk_bytes = kPage << (random() % 10);
      hashes[i] = file.hashes(offset, request.payload_length, request.chunk_bytes);
      request.chunk_hashes = hashes[i];
    }
    bytes += pages * kPage;
  }
  for (const ReadRequest& request : requests) ASSERT_TRUE(backend->submit(request)) << request.tag;

  std::set<std::uint64_t> tags;
  for (const ReadCompletion& completion : collector.wait(200)) {
    ASSERT_TRUE(completion.status) << completion.status.to_string();
    const ReadRequest& request = requests[completion.tag];
    EXPECT_EQ(completion.bytes, request.length);
    EXPECT_EQ(completion.retries, 0u);
    EXPECT_GE(completion.seconds, 0.0);
    EXPECT_TRUE(buffers[completion.tag].equals(file, request.offset, request.length)) << completion.tag;
    tags.insert(completion.tag);
  }
  EXPECT_EQ(tags.size(), 200u);
  ASSERT_TRUE(backend->close(std::chrono::minutes(1)));
  const ReadStats stats = backend->stats();
  EXPECT_EQ(stats.reads, 200u);
  EXPECT_EQ(stats.bytes, bytes);
  EXPECT_EQ(stats.retries, 0u);
  EXPECT_EQ(stats.queued, 0u);
  EXPECT_EQ(stats.in_flight, 0u);
  EXPECT_GT(stats.busy_seconds, 0.0);
}

TEST_P(ReadBackendTest, OneLaneAndTheSmallestLimitsReadARecordOfManyPieces) {
  const PatternFile file(3 * kMiB);
  Collector collector;
  ReadBackendOptions options = this->options();
  options.lanes = 1;
  options.inflight_bytes = 1;
  options.read_bytes = 1;
  auto backend = testing::open_or_fail(file, options, collector);
  ASSERT_NE(backend, nullptr);
  const Buffer buffer(3 * kMiB);
  ASSERT_TRUE(backend->submit(request_for(1, 0, 3 * kMiB, buffer)));
  EXPECT_TRUE(collector.wait(1)[0].status);
  EXPECT_TRUE(buffer.equals(file, 0, 3 * kMiB));
}

TEST_P(ReadBackendTest, ReadsSeveralFiles) {
  const PatternFile first(kMiB, 1);
  const PatternFile second(2 * kMiB, 2);
  const std::filesystem::path paths[] = {first.path(), second.path()};
  Collector collector;
  auto backend = open_read_backend(paths, options(), collector.callback());
  ASSERT_TRUE(backend) << backend.status().to_string();
  const Buffer a(kMiB);
  const Buffer b(kMiB);
  ReadRequest request = request_for(2, kMiB, kMiB, b);
  request.file = 1;
  ASSERT_TRUE((*backend)->submit(request));
  ASSERT_TRUE((*backend)->submit(request_for(1, 0, kMiB, a)));
  for (const ReadCompletion& completion : collector.wait(2)) EXPECT_TRUE(completion.status);
  EXPECT_TRUE(a.equals(first, 0, kMiB));
  EXPECT_TRUE(b.equals(second, kMiB, kMiB));
}

TEST_P(ReadBackendTest, CompletionsMaySubmitMore) {
  const PatternFile file(kMiB);
  std::vector<Buffer> buffers;
  for (int i = 0; i < 64; ++i) buffers.emplace_back(16 * kPage);
  std::unique_ptr<ReadBackend> backend;
  Collector collector;
  const auto collect = collector.callback();
  ReadBackendOptions options = this->options();
  options.max_outstanding = 1;  // the place of a completed read is free in its completion
  const std::filesystem::path paths[] = {file.path()};
  auto opened = open_read_backend(paths, options, [&](ReadCompletion&& completion) {
    const std::uint64_t next = completion.tag + 1;
    if (next < 64) {
      const Status status =
          backend->submit(request_for(next, next % 16 * 16 * kPage, 16 * kPage, buffers[next]));
      EXPECT_TRUE(status) << status.to_string();
    }
    collect(std::move(completion));
  });
  ASSERT_TRUE(opened);
  backend = std::move(opened).value();
  ASSERT_TRUE(backend->submit(request_for(0, 0, 16 * kPage, buffers[0])));
  collector.wait(64);
  for (std::uint64_t i = 0; i < 64; ++i)
    EXPECT_TRUE(buffers[i].equals(file, i % 16 * 16 * kPage, 16 * kPage));
}

TEST_P(ReadBackendTest, ReadsPastTheEndNameExpectedAndFound) {
  // The length is no multiple of a page, as after a copy that broke off.
  const PatternFile file(10 * kPage + 100);
  Collector collector;
  auto backend = testing::open_or_fail(file, options(), collector);
  ASSERT_NE(backend, nullptr);
  const Buffer buffer(8 * kPage);
  ASSERT_TRUE(backend->submit(request_for(1, 8 * kPage, 8 * kPage, buffer)));
  ASSERT_TRUE(collector.wait(1).size() == 1);
  ASSERT_TRUE(backend->submit(request_for(2, 64 * kPage, kPage, buffer)));
  const auto completions = collector.wait(2);
  for (const ReadCompletion& completion : completions) {
    EXPECT_EQ(completion.status.code(), ErrorCode::corrupt);
    EXPECT_EQ(completion.bytes, 0u);
    const std::string text = completion.status.to_string();
    EXPECT_NE(text.find("found " + std::to_string(10 * kPage + 100)), std::string::npos) << text;
    EXPECT_NE(text.find(file.path().string()), std::string::npos) << text;
  }
  EXPECT_NE(completions[0].status.to_string().find("at least 65536 bytes"), std::string::npos);
  EXPECT_EQ(backend->stats().failed, 2u);
}

TEST_P(ReadBackendTest, WrongHashIsRetriedOnceThenCorruptAtTheChunk) {
  const PatternFile file(4 * kMiB);
  Collector collector;
  auto backend = testing::open_or_fail(file, options(), collector);
  ASSERT_NE(backend, nullptr);
  const Buffer buffer(2 * kMiB);
  auto hashes = file.hashes(kMiB, 2 * kMiB - 1000, 128 << 10);
  hashes[11] ^= 1;
  ReadRequest request = request_for(9, kMiB, 2 * kMiB, buffer);
  request.chunk_hashes = hashes;
  request.chunk_bytes = 128 << 10;
  request.payload_length = 2 * kMiB - 1000;
  ASSERT_TRUE(backend->submit(request));
  const ReadCompletion completion = collector.wait(1)[0];
  EXPECT_EQ(completion.tag, 9u);
  EXPECT_EQ(completion.status.code(), ErrorCode::corrupt);
  EXPECT_EQ(completion.retries, 1u);
  const std::string text = completion.status.to_string();
  EXPECT_NE(text.find("offset " + std::to_string(kMiB + 11 * (128 << 10)) + ","), std::string::npos) << text;
  EXPECT_NE(text.find("record at offset 1048576"), std::string::npos) << text;
  EXPECT_NE(text.find(file.path().string()), std::string::npos) << text;
  EXPECT_EQ(backend->stats().retried_bytes, kMiB);  // the piece with the chunk, not the record
}

TEST_P(ReadBackendTest, RefusesRequestsThatBreakTheRules) {
  const PatternFile file(kMiB);
  Collector collector;
  auto backend = testing::open_or_fail(file, options(), collector);
  ASSERT_NE(backend, nullptr);
  const Buffer buffer(4 * kPage);
  const std::uint64_t hashes[2] = {1, 2};
  const ReadRequest good = request_for(1, 0, 2 * kPage, buffer);
  std::vector<ReadRequest> bad(10, good);
  bad[0].file = 1;
  bad[1].length = 0;
  bad[2].length = 100;
  bad[3].offset = 512;
  bad[4].destination += 64;
  bad[5].destination = nullptr;
  bad[6].offset = UINT64_MAX - kPage + 1;
  bad[7].chunk_hashes = hashes;  // no chunk size
  bad[8] = good, bad[8].chunk_hashes = hashes, bad[8].chunk_bytes = kPage, bad[8].payload_length = kPage;
  bad[9] = good, bad[9].chunk_hashes = hashes, bad[9].chunk_bytes = 2 * kPage,
  bad[9].payload_length = 3 * kPage;
  for (const ReadRequest& request : bad) {
    EXPECT_EQ(backend->submit(request).code(), ErrorCode::invalid_input) << &request - bad.data();
  }
  backend.reset();
  EXPECT_EQ(collector.count(), 0u);
}

TEST_P(ReadBackendTest, SaysWhatItIs) {
  const PatternFile file(kPage);
  Collector collector;
  ReadBackendOptions options = this->options();
  options.lanes = 3;
  auto backend = testing::open_or_fail(file, options, collector);
  ASSERT_NE(backend, nullptr);
  const std::string text(backend->description());
  EXPECT_EQ(text.substr(0, text.find(',')), testing::kind_name(GetParam().kind));
  EXPECT_NE(text.find(", 3 lanes"), std::string::npos);
  if (GetParam().direct == DirectIo::off) {
    EXPECT_NE(text.find("buffered"), std::string::npos);
  }
}

TEST(ReadBackendOpen, NamesWhatIsWrong) {
  const auto ignore = [](ReadCompletion&&) {};
  const std::filesystem::path missing[] = {"/nonexistent/experts.bin"};
  EXPECT_EQ(open_read_backend(missing, {}, ignore).status().code(), ErrorCode::not_found);
  const std::filesystem::path folder[] = {std::filesystem::temp_directory_path()};
  EXPECT_EQ(open_read_backend(folder, {}, ignore).status().code(), ErrorCode::io);
  EXPECT_EQ(open_read_backend({}, {}, ignore).status().code(), ErrorCode::invalid_input);
  const PatternFile file(kPage);
  const std::filesystem::path paths[] = {file.path()};
  EXPECT_EQ(open_read_backend(paths, {}, nullptr).status().code(), ErrorCode::invalid_input);
  ReadBackendOptions options;
  options.lanes = kMaxReadLanes + 1;
  EXPECT_EQ(open_read_backend(paths, options, ignore).status().code(), ErrorCode::invalid_input);
  options = {};
  options.inflight_bytes = 0;
  EXPECT_EQ(open_read_backend(paths, options, ignore).status().code(), ErrorCode::invalid_input);
}

TEST(ReadBackendRegistered, ReadsIntoAndBesideARegisteredRegion) {
  COLIBRI_SKIP_WITHOUT(ReadKind::io_uring);
  const PatternFile file(4 * kMiB);
  auto region = AlignedRegion::create(2 * kMiB);
  ASSERT_TRUE(region);
  testing::Log log;
  ReadBackendOptions options;
  options.kind = ReadKind::io_uring;
  options.registered_region = region->bytes();
  options.log = log.sink();
  Collector collector;
  auto backend = testing::open_or_fail(file, options, collector);
  ASSERT_NE(backend, nullptr);
  const Buffer beside(kMiB);
  ReadRequest inside = request_for(1, kMiB, kMiB, beside);
  inside.destination = region->data() + kMiB;
  ASSERT_TRUE(backend->submit(inside));
  ASSERT_TRUE(backend->submit(request_for(2, 2 * kMiB, kMiB, beside)));
  for (const ReadCompletion& completion : collector.wait(2)) EXPECT_TRUE(completion.status);
  EXPECT_EQ(std::memcmp(region->data() + kMiB, file.bytes().data() + kMiB, kMiB), 0);
  EXPECT_TRUE(beside.equals(file, 2 * kMiB, kMiB));
}

}  // namespace
}  // namespace colibri
