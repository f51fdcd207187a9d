// Reading allocates nothing once a backend is warm: neither in submit nor on its threads.
// operator new is replaced here, and the C allocators are wrapped by the linker for all
// objects of this executable (Asio calls aligned_alloc from its headers).
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>

#include "tests/read/read_fixture.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};
}  // namespace

extern "C" {
void* __real_malloc(std::size_t);
void* __real_calloc(std::size_t, std::size_t);
void* __real_realloc(void*, std::size_t);
void* __real_aligned_alloc(std::size_t, std::size_t);
void* __wrap_malloc(std::size_t size) {
  allocations.fetch_add(1);
  return __real_malloc(size);
}
void* __wrap_calloc(std::size_t count, std::size_t size) {
  allocations.fetch_add(1);
  return __real_calloc(count, size);
}
void* __wrap_realloc(void* memory, std::size_t size) {
  allocations.fetch_add(1);
  return __real_realloc(memory, size);
}
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t size) {
  allocations.fetch_add(1);
  return __real_aligned_alloc(alignment, size);
}
}

void* operator new(std::size_t size) {
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

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
  options.read_bytes_max = 32 << 10;
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
  const std::uint64_t before = allocations.load();
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(allocations.load() - before, 0u);
  EXPECT_EQ(failed, 0u);
  EXPECT_GT(before, 0u);  // the counters count
}

}  // namespace
}  // namespace colibri
