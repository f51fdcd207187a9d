// WriteBehind: keeps a long sequential write from filling memory with pages that wait for the drive.
//
// Every window of written bytes is handed to the drive at once, and waited for one window later;
// its pages then leave the page cache, which nobody needs: experts are read with O_DIRECT. A file
// of any size is so written at the speed of the drive, with two windows in memory.
#pragma once

#include <cstdint>

#include "io/container/file_handle.hpp"

namespace colibri {

class WriteBehind {
 public:
  static constexpr std::uint64_t kWindow = 64ULL << 20;

  // Bytes before `position` are none of this object's. The file must outlive the calls.
  explicit WriteBehind(std::uint64_t position = 0) noexcept : settled_(position), started_(position) {}

  // All bytes before `position` are written.
  void advance(const FileHandle& file, std::uint64_t position) noexcept {
    while (position - started_ >= kWindow) {
      file.start_write_back(started_, kWindow);
      if (started_ > settled_) file.settle(settled_, started_ - settled_);
      settled_ = started_;
      started_ += kWindow;
    }
  }

 private:
  std::uint64_t settled_;  // up to here bytes are on the drive and out of the cache
  std::uint64_t started_;  // up to here they are on their way
};

}  // namespace colibri
