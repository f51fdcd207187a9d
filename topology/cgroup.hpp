// The limits of the control groups that this process is in: versions 1, 2 and both at once.
//
// A limit of any group up to the root of the mount counts, the tightest wins. In a container
// the outer groups are not visible, which is as well: the limit of the container is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace colibri {

struct CgroupLimits {
  double cpu_quota = 0;                 // CPUs; 0: no limit
  std::uint64_t memory_limit_free = 0;  // limit minus use, at least 1; 0: no limit
  std::string cpu_quota_origin;         // "cgroup cpu.max of /a/b"
  std::string memory_limit_origin;
};

// What cannot be read is no limit: some systems have no cgroups.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root);

}  // namespace colibri
