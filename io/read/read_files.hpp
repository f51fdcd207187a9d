// ReadFiles: the open files of a backend and the O_DIRECT part of the ladder.
//
// There is one open file description per file; lanes use its descriptor or a duplicate,
// so taking O_DIRECT off here takes it off everywhere at once. Internal to io/read.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/read/read_backend.hpp"
#include "io/status.hpp"

namespace colibri {

// How a set of files is read, for descriptions.
enum class DirectState : std::uint8_t { direct, buffered, mixed };

class ReadFiles {
 public:
  // `direct_open_error`: errno to pretend for each open with O_DIRECT (0: none; tests).
  static Result<std::unique_ptr<ReadFiles>> open(std::span<const std::filesystem::path> paths,
                                                 DirectIo direct, std::function<void(std::string)> log,
                                                 int direct_open_error);
  ~ReadFiles();
  ReadFiles(const ReadFiles&) = delete;
  ReadFiles& operator=(const ReadFiles&) = delete;

  std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(files_.size()); }
  int descriptor(std::uint32_t file) const noexcept { return files_[file].descriptor; }
  std::string path(std::uint32_t file) const { return files_[file].path.string(); }
  bool is_direct(std::uint32_t file) const noexcept {
    return files_[file].direct.load(std::memory_order_acquire);
  }
  DirectState direct_state() const noexcept;

  // The size of the file now, or nothing when the system does not say.
  std::optional<std::uint64_t> size(std::uint32_t file) const noexcept;

  // Called when a read with O_DIRECT was refused: reads this file buffered from now on.
  // False when O_DIRECT was asked for by name, so that the read has to fail.
  bool fall_back_to_buffered(std::uint32_t file, int error);

  // After a buffered read, when O_DIRECT was wanted: keeps the page cache from doubling the
  // memory that holds the record already.
  void drop_cache(std::uint32_t file, std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
  struct File {
    std::filesystem::path path;
    int descriptor = -1;
    std::atomic<bool> direct{false};
  };

  ReadFiles(std::size_t count, DirectIo direct, std::function<void(std::string)> log)
      : files_(count), direct_(direct), log_(std::move(log)) {}
  Status open_file(File& file, int direct_open_error);
  void log_buffered(const File& file, std::string_view when, int error) const;

  std::vector<File> files_;
  DirectIo direct_;
  std::function<void(std::string)> log_;
  std::mutex fall_back_mutex_;
};

}  // namespace colibri
