// What the tests of io/read share: a file with known bytes, aligned memory, and a
// collector of completions that can be waited for.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "io/read/read_backend.hpp"

namespace colibri::testing {

// A file of pseudo-random bytes in a temporary folder of its own, removed at the end.
class PatternFile {
 public:
  explicit PatternFile(std::uint64_t bytes, std::uint64_t seed = 1);
  ~PatternFile();
  PatternFile(const PatternFile&) = delete;
  PatternFile& operator=(const PatternFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  // xxh3-64 of each chunk of [offset, offset + payload), straight from the library.
  std::vector<std::uint64_t> hashes(std::uint64_t offset, std::uint64_t payload,
                                    std::uint64_t chunk_bytes) const;

 private:
  std::filesystem::path folder_;
  std::filesystem::path path_;
  std::vector<std::byte> bytes_;
};

// Memory aligned to a page, filled with 0xEE.
class Buffer {
 public:
  explicit Buffer(std::uint64_t bytes);
  std::byte* data() const { return data_.get(); }
  bool equals(const PatternFile& file, std::uint64_t offset, std::uint64_t length) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

// Collects completions in the order of their arrival.
class Collector {
 public:
  ReadBackend::OnComplete callback();
  // All completions once there are at least `count`; fails the test after a minute.
  std::vector<ReadCompletion> wait(std::size_t count);
  std::size_t count() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ReadCompletion> completions_;
};

// Lines that a backend logged; outlives the backend through the function it gives.
class Log {
 public:
  std::function<void(std::string)> sink();
  std::vector<std::string> lines() const;

 private:
  struct Lines {
    std::mutex mutex;
    std::vector<std::string> lines;
  };
  std::shared_ptr<Lines> lines_ = std::make_shared<Lines>();
};

ReadRequest request_for(std::uint64_t tag, std::uint64_t offset, std::uint64_t length, const Buffer& buffer,
                        bool demand = true);

// Why io_uring cannot be used here, or nothing: sandboxes often refuse it.
std::optional<std::string> io_uring_refusal();

// Opens or fails the test.
std::unique_ptr<ReadBackend> open_or_fail(const PatternFile& file, const ReadBackendOptions& options,
                                          Collector& collector);

// "pread" or "io_uring".
std::string kind_name(ReadKind kind);

}  // namespace colibri::testing

// Skips the test when it needs io_uring and that is refused.
#define COLIBRI_SKIP_WITHOUT(kind)                                       \
  do {                                                                   \
    if ((kind) == ::colibri::ReadKind::io_uring) {                       \
      if (const auto refusal = ::colibri::testing::io_uring_refusal()) { \
        GTEST_SKIP() << *refusal;                                        \
      }                                                                  \
    }                                                                    \
  } while (false)
