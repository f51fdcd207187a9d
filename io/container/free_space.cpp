// Sums of needs by file system.
#include "io/container/free_space.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <limits>

namespace colibri {
namespace {

constexpr std::uint64_t kBlockBytes = 512;  // unit of st_blocks, whatever the file system's own

}  // namespace

void FreeSpace::need(const std::filesystem::path& folder, std::uint64_t bytes,
                     const std::filesystem::path& file) {
  struct stat facts {};
  if (::stat(folder.c_str(), &facts) != 0) return;  // unknown: writing will tell
  const dev_t device = facts.st_dev;
  auto found =
      std::find_if(needs_.begin(), needs_.end(), [&](const Need& need) { return need.device == device; });
  if (found == needs_.end()) found = needs_.insert(needs_.end(), Need{device, folder});
  found->bytes = checked_add(found->bytes, bytes).value_or(std::numeric_limits<std::uint64_t>::max());
  if (!file.empty() && ::stat(file.c_str(), &facts) == 0) {
    found->taken += static_cast<std::uint64_t>(facts.st_blocks) * kBlockBytes;
  }
}

Status FreeSpace::check() const {
  for (const Need& need : needs_) {
    const std::uint64_t bytes = need.bytes - std::min(need.bytes, need.taken);
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(need.folder, error);
    if (error || space.available >= bytes) continue;
    return {ErrorCode::io, "not enough free space for the model: " + need.folder.string() + ", expected " +
                               std::to_string(bytes) + " bytes, found " + std::to_string(space.available) +
                               "; free some space or choose another folder"};
  }
  return Status::ok();
}

}  // namespace colibri
