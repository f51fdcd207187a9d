#include "tests/read/read_fixture.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>

namespace colibri::testing {

PatternFile::PatternFile(std::uint64_t bytes, std::uint64_t seed) : bytes_(bytes) {
  std::string name = (std::filesystem::temp_directory_path() / "colibri_read_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  folder_ = name;
  path_ = folder_ / "experts.bin";
  std::mt19937_64 random(seed);
  for (std::uint64_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes_.data() + i, &word, std::min<std::uint64_t>(8, bytes - i));
  }
  const int file = ::open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  for (std::uint64_t at = 0; at < bytes;) {
    const ssize_t written = ::pwrite(file, bytes_.data() + at, bytes - at, static_cast<off_t>(at));
    if (written <= 0) throw std::runtime_error("cannot write the test file");
    at += static_cast<std::uint64_t>(written);
  }
  // Out of the page cache, so that what is in there later was read by the backend.
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

PatternFile::~PatternFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::uint64_t> PatternFile::hashes(std::uint64_t offset, std::uint64_t payload,
                                               std::uint64_t chunk_bytes) const {
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t at = 0; at < payload; at += chunk_bytes) {
    hashes.push_back(XXH3_64bits(bytes_.data() + offset + at, std::min(chunk_bytes, payload - at)));
  }
  return hashes;
}

Buffer::Buffer(std::uint64_t bytes) : data_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes))) {
  std::memset(data_.get(), 0xEE, bytes);
}

bool Buffer::equals(const PatternFile& file, std::uint64_t offset, std::uint64_t length) const {
  return std::memcmp(data_.get(), file.bytes().data() + offset, length) == 0;
}

ReadBackend::OnComplete Collector::callback() {
  return [this](ReadCompletion&& completion) {
    const std::lock_guard lock(mutex_);
    completions_.push_back(std::move(completion));
    changed_.notify_all();
  };
}

std::vector<ReadCompletion> Collector::wait(std::size_t count) {
  std::unique_lock lock(mutex_);
  const bool arrived =
      changed_.wait_for(lock, std::chrono::minutes(1), [&] { return completions_.size() >= count; });
  EXPECT_TRUE(arrived) << "only " << completions_.size() << " of " << count << " completions";
  std::vector<ReadCompletion> copy = completions_;
  copy.resize(std::max(copy.size(), count));
  return copy;
}

std::size_t Collector::count() const {
  const std::lock_guard lock(mutex_);
  return completions_.size();
}

std::function<void(std::string)> Log::sink() {
  return [lines = lines_](std::string line) {
    const std::lock_guard lock(lines->mutex);
    lines->lines.push_back(std::move(line));
  };
}

std::vector<std::string> Log::lines() const {
  const std::lock_guard lock(lines_->mutex);
  return lines_->lines;
}

ReadRequest request_for(std::uint64_t tag, std::uint64_t offset, std::uint64_t length, const Buffer& buffer,
                        bool demand) {
  ReadRequest request;
  request.tag = tag;
  request.offset = offset;
  request.destination = buffer.data();
  request.length = length;
  request.demand = demand;
  return request;
}

std::optional<std::string> io_uring_refusal() {
  const PatternFile file(4096);
  const std::filesystem::path paths[] = {file.path()};
  ReadBackendOptions options;
  options.kind = ReadKind::io_uring;
  auto opened = open_read_backend(paths, options, [](ReadCompletion&&) {});
  if (opened) return std::nullopt;
  return opened.status().to_string();
}

std::unique_ptr<ReadBackend> open_or_fail(const PatternFile& file, const ReadBackendOptions& options,
                                          Collector& collector) {
  const std::filesystem::path paths[] = {file.path()};
  auto opened = open_read_backend(paths, options, collector.callback());
  if (!opened) {
    ADD_FAILURE() << opened.status().to_string();
    return nullptr;
  }
  return std::move(opened).value();
}

std::string kind_name(ReadKind kind) { return kind == ReadKind::pread ? "pread" : "io_uring"; }

}  // namespace colibri::testing
