// The machine: affinity and memory from /proc, limits from cgroups, hardware from hwloc.
//
// All but the hardware is read from files below a root, so that a test can copy the files of
// any machine. What a system does not have (cgroups, NUMA) is no limit and one node; what
// every Linux has (affinity, MemAvailable) must be readable.
#include "topology/machine.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "topology/cgroup.hpp"
#include "topology/cpu_list.hpp"
#include "topology/hardware.hpp"
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

// Nodes from a tree of files: copied ones, and machines that hwloc does not know.
std::vector<NumaNode> nodes_of_files(const fs::path& root, const std::vector<std::uint32_t>& allowed_cpus,
                                     std::string_view status) {
  const std::string folder = root.string() + "/sys/devices/system/node/";
  std::optional<std::string> text = read_proc_text(folder + "has_memory");
  if (!text) text = read_proc_text(folder + "online");
  std::vector<std::uint32_t> indices = list_or_empty(text);
  if (const auto allowed = list_or_empty(line_value(status, "Mems_allowed_list:")); !allowed.empty()) {
    indices = intersection(indices, allowed);
  }
  std::vector<NumaNode> nodes;
  for (const std::uint32_t index : indices) {
    const auto cpus = list_or_empty(read_proc_text(folder + "node" + std::to_string(index) + "/cpulist"));
    nodes.push_back({.index = index, .cpus = intersection(cpus, allowed_cpus)});
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

std::uint32_t Machine::threads_for(std::size_t cpu_count) const noexcept {
  auto threads = static_cast<double>(cpu_count);
  if (cpu_quota > 0) threads = std::min(threads, std::ceil(cpu_quota));
  return std::max<std::uint32_t>(static_cast<std::uint32_t>(threads), 1);
}

// The rest of the machine is for the kernel, for the page cache and for what other programs will want. A
// limit is there to be used: plans have been seen to be exact to 2 %, and reads to need no page cache.
std::uint64_t Machine::usable_memory() const noexcept {
  return limit_counts() ? memory_limit_free / 10 * 9 : memory_available / 5 * 4;
}

bool Machine::limit_counts() const noexcept {
  return memory_limit_free != 0 && memory_limit_free / 10 * 9 < memory_available / 5 * 4;
}

const NumaNode* Machine::find_node(std::uint32_t index) const noexcept {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [index](const NumaNode& node) { return node.index == index; });
  return found == nodes.end() ? nullptr : &*found;
}

Result<Machine> read_machine(const std::string& root, MachineDetail detail) {
  const fs::path top(root);
  // Affinity is a matter of threads: the caller's counts, not the first thread's.
  std::optional<std::string> status = read_proc_text(top.string() + "/proc/thread-self/status");
  if (!status) status = read_proc_text(top.string() + "/proc/self/status");
  const std::optional<std::string> meminfo = read_proc_text(top.string() + "/proc/meminfo");
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
  if (root == "/") read_running_hardware(detail, machine);
  if (machine.nodes.empty()) machine.nodes = nodes_of_files(top, machine.cpus, *status);
  if (machine.nodes.empty()) {
    machine.nodes.push_back({.index = 0, .cpus = machine.cpus});  // kernels without NUMA
  }
  machine.numa_nodes = static_cast<std::uint32_t>(machine.nodes.size());
  return machine;
}

Result<Machine> read_machine_file(const fs::path& file) {
  const auto refuse = [&file](ErrorCode code, std::string_view why) {
    return Status(code, "the machine file cannot be used: " + file.string() + ": " + std::string(why) +
                            "; expected XML written by `lstopo machine.xml` of hwloc 2");
  };
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(file, error);
  if (error) return refuse(ErrorCode::not_found, error.message());
  if (bytes > kMaximumMachineFileBytes) {
    return refuse(ErrorCode::invalid_input, "it has " + std::to_string(bytes) + " bytes, more than the " +
                                                std::to_string(kMaximumMachineFileBytes) + " allowed");
  }
  std::ifstream stream(file, std::ios::binary);
  std::string xml(bytes, '\0');
  stream.read(xml.data(), static_cast<std::streamsize>(bytes));
  xml.resize(static_cast<std::size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  if (stream.bad() || xml.empty()) return refuse(ErrorCode::io, "it is empty or cannot be read");
  Machine machine;
  machine.name = "the machine of " + file.string();
  machine.cpus_origin = "the machine file";
  if (const Status read = read_exported_hardware(xml, machine); !read)
    return refuse(read.code(), read.message());
  machine.numa_nodes = static_cast<std::uint32_t>(machine.nodes.size());
  for (const NumaNode& node : machine.nodes) {
    const auto sum = checked_add(machine.memory_available, node.memory_bytes);
    if (!sum) return refuse(ErrorCode::invalid_input, "its nodes have more memory than a number can hold");
    machine.memory_available = *sum;
  }
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

}  // namespace colibri
