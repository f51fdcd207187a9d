// The machine as the runtime sees it: CPUs and memory that may be used, and how they lie.
//
// Affinity, cgroup v1 and v2 limits and CFS quotas are all obeyed: a container with a
// quota of two CPUs on a wide machine gets two threads. Another machine is read from a file
// that hwloc has written (`lstopo machine.xml` there), so that pipelines can be checked here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"
#include "kernels/export.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {

// All lists of CPUs are ascending and hold only CPUs of Machine::cpus.
struct NumaNode {
  std::uint32_t index = 0;          // as the kernel numbers it
  std::vector<std::uint32_t> cpus;  // near to its memory; may be empty
  std::uint64_t memory_bytes = 0;   // in all; 0: unknown
};

struct Core {
  std::uint32_t package = 0;        // index, as hwloc counts packages
  std::vector<std::uint32_t> cpus;  // SMT siblings
};

struct Cache {
  std::uint32_t level = 0;  // of data or both; instruction caches are left out
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> cpus;  // that share it
};

struct Device {
  enum class Kind : std::uint8_t { drive, gpu } kind = Kind::drive;
  std::string name;                   // "nvme0n1"
  std::optional<std::uint32_t> node;  // to which its PCI bus is near; nullopt: unknown, or to several
};

struct COLIBRI_API Machine {
  std::string name = "this machine";  // in messages
  std::vector<std::uint32_t> cpus;    // logical CPUs that may be used
  std::string cpus_origin = "the affinity mask";
  double cpu_quota = 0;  // CPUs allowed by the cgroup; 0: no limit
  std::uint32_t numa_nodes = 1;
  std::vector<NumaNode> nodes;          // numa_nodes of them, ascending
  std::vector<Core> cores;              // empty: unknown, each CPU counts as one
  std::vector<Cache> caches;            // by level; empty: unknown
  std::vector<Device> devices;          // only when asked for
  std::uint64_t memory_available = 0;   // MemAvailable
  std::uint64_t memory_limit_free = 0;  // cgroup limit minus use; 0: no limit
  std::string cpu_quota_origin;         // "cgroup cpu.max", "" ...
  std::string memory_limit_origin;

  // Threads for that many CPUs: no more than the quota, rounded up; at least 1.
  std::uint32_t threads_for(std::size_t cpu_count) const noexcept;
  std::uint32_t default_threads() const noexcept { return threads_for(cpus.size()); }
  std::uint64_t usable_memory() const noexcept;  // 80 % of what is available, at most 90 % of limit - use
  bool limit_counts() const noexcept;            // usable_memory is a share of the limit
  const NumaNode* find_node(std::uint32_t index) const noexcept;  // null: not there
};

// Drives and GPUs take as long to find as all the rest.
enum class MachineDetail : std::uint8_t { processors, devices };

// Reads the running machine; not_found when /proc cannot be read. `root` lets tests point at a copied /proc
// and /sys.
COLIBRI_API Result<Machine> read_machine(const std::string& root = "/",
                                         MachineDetail detail = MachineDetail::processors);

// A machine from a file that hwloc has exported (XML of hwloc 2). It is taken as free of other work: no
// quota, all of its memory available. Errors name the file: it is untrusted.
COLIBRI_API Result<Machine> read_machine_file(const std::filesystem::path& file);
inline constexpr std::uint64_t kMaximumMachineFileBytes = std::uint64_t{8} << 20;

// VmHWM + HugetlbPages of this process, bytes.
COLIBRI_API std::uint64_t peak_resident_bytes();
// VmRSS + HugetlbPages now.
COLIBRI_API std::uint64_t resident_bytes();

}  // namespace colibri
