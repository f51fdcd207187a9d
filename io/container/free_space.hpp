// FreeSpace: whether what is about to be written fits, for files that go to several drives.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "io/status.hpp"

namespace colibri {

// Kept free on top: folders, spec, manifest, state.
inline constexpr std::uint64_t kSpaceReserve = 16U << 20;

class FreeSpace {
 public:
  // `bytes` will be written into `folder`, less what `file`, if given, already takes there.
  void need(const std::filesystem::path& folder, std::uint64_t bytes, const std::filesystem::path& file = {});
  // Not ok when a file system has less room than is needed on it; names its first folder.
  Status check() const;

 private:
  // Folders on one file system share its room.
  struct Need {
    dev_t device = 0;
    std::filesystem::path folder;
    std::uint64_t bytes = 0;
    std::uint64_t taken = 0;
  };
  std::vector<Need> needs_;
};

}  // namespace colibri
