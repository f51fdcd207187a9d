// The machine: affinity and memory from /proc, limits from cgroups, NUMA nodes from hwloc.
//
// All but the nodes is read from files below a root, so that a test can copy the files of
// any machine. What a system does not have (cgroups, NUMA) is no limit and one node; what
// every Linux has (affinity, MemAvailable) must be readable.
#include "topology/machine.hpp"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>

#include "topology/cgroup.hpp"
#include "topology/cpu_list.hpp"
#include "topology/proc_text.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

// A list of CPUs or nodes as the kernel writes it; empty when it is missing or not understood.
std::vector<std::uint32_t> list_or_empty(std::optional<std::string_view> text) {
  if (!text) return {};
  Result<std::vector<std::uint32_t>> list = parse_cpu_list(trim_blanks(*text));
  return list ? std::move(*list) : std::vector<std::uint32_t>();
}

std::vector<std::uint32_t> intersection(const std::vector<std::uint32_t>& a,
                                        const std::vector<std::uint32_t>& b) {
  std::vector<std::uint32_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

// Nodes of the running machine, those outside our cpuset left out by hwloc; empty when it cannot look.
std::vector<NumaNode> nodes_of_running_machine(const std::vector<std::uint32_t>& allowed) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {};
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(raw,
                                                                                    hwloc_topology_destroy);
  // NUMA nodes alone: caches and devices cost most of the time that loading takes.
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(raw) != 0) return {};
  std::vector<NumaNode> nodes;
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_NUMANODE, object)) != nullptr;) {
    NumaNode node{object->os_index, {}};
    for (const std::uint32_t cpu : allowed) {
      if (object->cpuset != nullptr && hwloc_bitmap_isset(object->cpuset, cpu)) node.cpus.push_back(cpu);
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// The same from a tree of files: copied ones, and machines that hwloc does not know.
std::vector<NumaNode> nodes_of_files(const fs::path& root, const std::vector<std::uint32_t>& allowed_cpus,
                                     std::string_view status) {
  const fs::path folder = root / "sys/devices/system/node";
  std::optional<std::string> text = read_proc_text(folder / "has_memory");
  if (!text) text = read_proc_text(folder / "online");
  std::vector<std::uint32_t> indices = list_or_empty(text);
  if (const auto allowed = list_or_empty(line_value(status, "Mems_allowed_list:")); !allowed.empty()) {
    indices = intersection(indices, allowed);
  }
  std::vector<NumaNode> nodes;
  for (const std::uint32_t index : indices) {
    const auto cpus = list_or_empty(read_proc_text(folder / ("node" + std::to_string(index)) / "cpulist"));
    nodes.push_back({index, intersection(cpus, allowed_cpus)});
  }
  return nodes;
}

// "VmHWM:   2104 kB" in bytes; 0 when the line is missing, as HugetlbPages is on some kernels.
std::uint64_t kibibytes(std::string_view text, std::string_view key) {
  const auto value = line_value(text, key);
  const auto number = value ? leading_number(*value) : std::nullopt;
  return number ? checked_mul<std::uint64_t>(*number, 1024).value_or(0) : 0;
}

}  // namespace

std::uint32_t Machine::default_threads() const noexcept {
  auto threads = static_cast<double>(cpus.size());
  if (cpu_quota > 0) threads = std::min(threads, std::ceil(cpu_quota));
  return std::max<std::uint32_t>(static_cast<std::uint32_t>(threads), 1);
}

std::uint64_t Machine::usable_memory() const noexcept {
  std::uint64_t free = memory_available;
  if (memory_limit_free != 0) free = std::min(free, memory_limit_free);
  // The rest is for the kernel, for the page cache and for what other programs will want.
  return free / 5 * 4;
}

Result<Machine> read_machine(const std::string& root) {
  const fs::path top(root);
  // Affinity is a matter of threads: the caller's counts, not the first thread's.
  std::optional<std::string> status = read_proc_text(top / "proc/thread-self/status");
  if (!status) status = read_proc_text(top / "proc/self/status");
  const std::optional<std::string> meminfo = read_proc_text(top / "proc/meminfo");
  if (!status || !meminfo) {
    return Status(ErrorCode::not_found,
                  "the machine cannot be read: no " + (top / "proc").string() + "; mount proc there");
  }
  Machine machine;
  machine.cpus = list_or_empty(line_value(*status, "Cpus_allowed_list:"));
  machine.memory_available = kibibytes(*meminfo, "MemAvailable:");
  if (machine.cpus.empty() || machine.memory_available == 0) {
    return Status(ErrorCode::not_found,
                  "the machine cannot be read: " + (top / "proc").string() +
                      " lacks Cpus_allowed_list or MemAvailable; Linux 3.14 or later is needed");
  }
  CgroupLimits limits = read_cgroup_limits(top);
  machine.cpu_quota = limits.cpu_quota;
  machine.cpu_quota_origin = std::move(limits.cpu_quota_origin);
  machine.memory_limit_free = limits.memory_limit_free;
  machine.memory_limit_origin = std::move(limits.memory_limit_origin);

  // hwloc looks at the running machine only (other roots are set by a process-wide variable).
  if (root == "/") machine.nodes = nodes_of_running_machine(machine.cpus);
  if (machine.nodes.empty()) machine.nodes = nodes_of_files(top, machine.cpus, *status);
  if (machine.nodes.empty()) machine.nodes.push_back({0, machine.cpus});  // kernels without NUMA
  machine.numa_nodes = static_cast<std::uint32_t>(machine.nodes.size());
  return machine;
}

std::uint64_t peak_resident_bytes() {
  const std::string status = read_proc_text("/proc/self/status").value_or("");
  return kibibytes(status, "VmHWM:") + kibibytes(status, "HugetlbPages:");
}

std::uint64_t resident_bytes() {
  const std::string status = read_proc_text("/proc/self/status").value_or("");
  return kibibytes(status, "VmRSS:") + kibibytes(status, "HugetlbPages:");
}

void check_placement(const PipelineSpec& spec, const Machine& machine, PipelineProblems& problems) {
  std::vector<std::uint32_t> nodes;
  for (const NumaNode& node : machine.nodes) nodes.push_back(node.index);
  for (const StageSpec& stage : spec.stages) {
    const std::string path = "stages." + stage.name;
    if (stage.numa_node && !std::binary_search(nodes.begin(), nodes.end(), *stage.numa_node)) {
      problems.add(stage.numa_node_origin, path + ".numa_node",
                   "no NUMA node " + std::to_string(*stage.numa_node) +
                       " may be used on this machine; expected one of " + format_cpu_list(nodes));
    }
    std::vector<std::uint32_t> missing;
    std::set_difference(stage.cpus.begin(), stage.cpus.end(), machine.cpus.begin(), machine.cpus.end(),
                        std::back_inserter(missing));
    if (!missing.empty()) {
      problems.add(stage.cpus_origin, path + ".cpus",
                   "CPUs " + format_cpu_list(missing) +
                       " may not be used on this machine; expected some of " + format_cpu_list(machine.cpus));
    }
  }
}

Status pin_this_thread(const std::vector<std::uint32_t>& cpus) {
  if (cpus.empty()) return {};
  const std::uint32_t highest = *std::max_element(cpus.begin(), cpus.end());
  if (highest > kMaximumCpu) {
    return {ErrorCode::invalid_input, "cannot pin a thread to CPU " + std::to_string(highest) +
                                          "; the highest is " + std::to_string(kMaximumCpu)};
  }
  // Allocated: the fixed cpu_set_t ends at CPU 1023.
  const std::size_t bytes = CPU_ALLOC_SIZE(highest + 1);
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
      CPU_ALLOC(highest + 1), [](cpu_set_t* allocated) { CPU_FREE(allocated); });
  if (set == nullptr) return {ErrorCode::out_of_memory, "no memory for a set of CPUs"};
  CPU_ZERO_S(bytes, set.get());
  for (const std::uint32_t cpu : cpus) CPU_SET_S(cpu, bytes, set.get());
  if (sched_setaffinity(0, bytes, set.get()) == 0) return {};
  return {ErrorCode::io, "cannot pin a thread to CPUs " + format_cpu_list(cpus) + ": " +
                             std::strerror(errno) + "; choose CPUs that exist and that this process may use"};
}

}  // namespace colibri
