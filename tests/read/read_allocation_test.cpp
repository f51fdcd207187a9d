// Reading allocates nothing once a backend is warm: neither in submit nor on its threads.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "tests/read/allocation_counter.hpp"
#include "tests/read/read_fixture.hpp"

namespace colibri {
namespace {

using testing::Buffer;
using testing::PatternFile;

class ReadAllocationTest : public ::testing::TestWithParam<ReadKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, ReadAllocationTest, ::testing::Values(ReadKind::io_uring, ReadKind::pread),
                         [](const auto& info) { return testing::kind_name(info.param); });

TEST_P(ReadAllocationTest, AWarmBackendAllocatesNothing) {
  COLIBRI_SKIP_WITHOUT(GetParam());
  constexpr std::uint64_t kRecord = 64 << 10;
  const PatternFile file(64 * kRecord);
  const Buffer buffer(64 * kRecord);
  std::vector<std::vector<std::uint64_t>> hashes;
  for (std::uint64_t i = 0; i < 64; ++i) hashes.push_back(file.hashes(i * kRecord, kRecord, 16 << 10));

  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  ReadBackendOptions options;
  options.kind = GetParam();
  options.read_bytes = 32 << 10;
  const std::filesystem::path paths[] = {file.path()};
  auto backend = open_read_backend(paths, options, [&](ReadCompletion&& completion) {
    const std::lock_guard lock(mutex);
    if (!completion.status) ++failed;
    ++completed;
    changed.notify_all();
  });
  ASSERT_TRUE(backend) << backend.status().to_string();
  const auto round = [&] {
    completed = 0;
    for (std::uint64_t i = 0; i < 64; ++i) {
      ReadRequest request = testing::request_for(i, i * kRecord, kRecord, buffer, i % 2 == 0);
      request.destination += i * kRecord;
      request.chunk_hashes = hashes[i];
      request.chunk_bytes = 16 << 10;
      request.payload_length = kRecord;
      ASSERT_TRUE((*backend)->submit(request));
      if (i % 2 == 1) (*backend)->promote(i);
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return completed == 64; });
  };
  round();
  const std::uint64_t before = testing::allocations();
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(testing::allocations() - before, 0u);
  EXPECT_EQ(failed, 0u);
  EXPECT_GT(before, 0u);  // the counters count
}

}  // namespace
}  // namespace colibri
