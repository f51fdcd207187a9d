// UniqueDescriptor owns a file descriptor; the functions beside it write and sync whole
// pieces and say which file failed and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "io/status.hpp"

namespace colibri {

class UniqueDescriptor {
 public:
  UniqueDescriptor() noexcept = default;
  explicit UniqueDescriptor(int descriptor, bool owned = true) noexcept
      : descriptor_(descriptor), owned_(owned) {}
  ~UniqueDescriptor() { reset(); }
  UniqueDescriptor(UniqueDescriptor&& other) noexcept { swap(other); }
  UniqueDescriptor& operator=(UniqueDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      swap(other);
    }
    return *this;
  }

  int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  void reset() noexcept;

 private:
  void swap(UniqueDescriptor& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(owned_, other.owned_);
  }
  int descriptor_ = -1;
  bool owned_ = true;  // false: borrowed, standard input and output
};

// "cannot <doing> 'path': <reason of errno>", with what to do for a full disk. Not found, access and
// space errors keep their own code.
Status system_error(std::string_view doing, std::string_view path, int error_number);

// Opens with O_CLOEXEC.
Result<UniqueDescriptor> open_file(const std::string& path, int flags, unsigned mode = 0);
// All of `bytes` at `offset`; interrupted and short writes go on.
Status write_at(int descriptor, std::string_view bytes, std::uint64_t offset, std::string_view path);
// All of `size` bytes at `offset`; the end of the file before that is an error.
Status read_at(int descriptor, char* bytes, std::size_t size, std::uint64_t offset, std::string_view path);
// Data and size reach the disk.
Status sync_file(int descriptor, std::string_view path);
// Makes names created, renamed or removed in the folder of `path` last.
Status sync_folder_of(const std::string& path);
Result<std::uint64_t> file_size(int descriptor, std::string_view path);
Status truncate_file(int descriptor, std::uint64_t size, std::string_view path);

}  // namespace colibri
