// FileHandle: one open regular file with exact reads and writes at offsets.
//
// Every failure names the file, the offset, and what was expected and found. A symbolic link
// whose target is gone is reported with both names, because downloaded model folders are
// full of links. Reads and writes at different offsets may run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "io/status.hpp"

namespace colibri {

class FileHandle {
 public:
  static Result<FileHandle> open_for_reading(const std::filesystem::path& path);
  // For reading and writing; created when absent, never truncated.
  static Result<FileHandle> open_for_writing(const std::filesystem::path& path);

  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  const std::filesystem::path& path() const noexcept { return path_; }
  // Size when the file was opened.
  std::uint64_t size() const noexcept { return size_; }
  // Nanoseconds since the epoch of the last change when the file was opened.
  std::int64_t modified_ns() const noexcept { return modified_ns_; }

  // Fills `bytes`, or fails; the end of the file inside the range is corrupt.
  Status read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;
  Status resize(std::uint64_t bytes) const;
  // Refused while another process has locked the file. The lock goes with the handle.
  Status lock() const;
  Status sync() const;  // returns when the data is on the device
  // Advice to the system, which may refuse it: a range begins its way to the device; it is waited for and
  // leaves the page cache; the file will be read from front to back.
  void start_write_back(std::uint64_t offset, std::uint64_t length) const noexcept;
  void settle(std::uint64_t offset, std::uint64_t length) const noexcept;
  void read_ahead() const noexcept;

 private:
  FileHandle(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  static Result<FileHandle> open(const std::filesystem::path& path, int flags, std::string_view purpose);
  // "WHAT: PATH" and the rest, with path and offset as data.
  Status failure(ErrorCode code, std::string_view what, const std::string& rest,
                 std::uint64_t offset = Status::kNoOffset) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::int64_t modified_ns_ = 0;
};

// The whole of a small file; refused above `limit` bytes.
Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit);
// Writes through a temporary name and a rename, so that the file is either whole or absent.
Status write_text_file(const std::filesystem::path& path, std::string_view text);
// Makes renames and creations inside a folder durable.
Status sync_folder(const std::filesystem::path& folder);

}  // namespace colibri
