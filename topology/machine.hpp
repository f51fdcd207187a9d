// The machine as the runtime sees it: CPUs that may be used, memory that may be used.
//
// Affinity, cgroup v1 and v2 limits and CFS quotas are all obeyed: a container with a
// quota of two CPUs on a wide machine gets two threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/status.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {

// A NUMA node with memory that this process may use.
struct NumaNode {
  std::uint32_t index = 0;          // as the kernel numbers it
  std::vector<std::uint32_t> cpus;  // those of Machine::cpus that are near; may be empty
};

struct Machine {
  std::vector<std::uint32_t> cpus;  // logical CPUs in the affinity mask
  double cpu_quota = 0;             // CPUs allowed by the cgroup; 0: no limit
  std::uint32_t numa_nodes = 1;
  std::vector<NumaNode> nodes;          // numa_nodes of them, ascending
  std::uint64_t memory_available = 0;   // MemAvailable
  std::uint64_t memory_limit_free = 0;  // cgroup limit minus use; 0: no limit
  std::string cpu_quota_origin;         // "cgroup cpu.max", "" ...
  std::string memory_limit_origin;

  std::uint32_t default_threads() const noexcept;  // min(affinity, quota rounded up), at least 1
  std::uint64_t usable_memory() const noexcept;    // 80 % of min(available, limit - use)
};

// Reads the running machine; not_found when /proc cannot be read. `root` lets tests point at a copied /proc
// and /sys.
Result<Machine> read_machine(const std::string& root = "/");

// VmHWM + HugetlbPages of this process, bytes.
std::uint64_t peak_resident_bytes();
// VmRSS + HugetlbPages now.
std::uint64_t resident_bytes();

// Adds a problem for each stage placed on CPUs or a NUMA node that this machine does not let us use.
void check_placement(const PipelineSpec& spec, const Machine& machine, PipelineProblems& problems);

// Sets the calling thread's affinity to `cpus`; empty does nothing. Returns an error that names the CPUs.
Status pin_this_thread(const std::vector<std::uint32_t>& cpus);

}  // namespace colibri
