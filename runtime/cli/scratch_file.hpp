// ScratchFile: a file of random bytes to measure with, in a folder of the user's choice.
//
// It has no name from the moment it exists: however the program ends, the system takes it back.
// Others reach it through the link of its descriptor in /proc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "io/status.hpp"

namespace colibri::cli {

class ScratchFile {
 public:
  // Fills the file and flushes it to its drive. Errors: io (no room, no permission), cancelled.
  // `progress` and `cancelled` may be empty.
  static Result<ScratchFile> create(const std::filesystem::path& folder, std::uint64_t bytes,
                                    const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                                    const std::function<bool()>& cancelled);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile();

  // For this process and its children, as long as this object lives.
  const std::filesystem::path& path() const noexcept { return path_; }
  double write_seconds() const noexcept { return write_seconds_; }

 private:
  explicit ScratchFile(int descriptor);
  Status fill(std::uint64_t bytes, const std::function<void(std::uint64_t, std::uint64_t)>& progress,
              const std::function<bool()>& cancelled);

  int descriptor_;
  std::filesystem::path path_;
  double write_seconds_ = 0;
};

}  // namespace colibri::cli
