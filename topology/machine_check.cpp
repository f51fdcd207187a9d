#include "topology/machine_check.hpp"

#include <algorithm>
#include <iterator>

#include "topology/cpu_list.hpp"
#include "topology/value_notes.hpp"

namespace colibri {

void check_placement(const PipelineSpec& spec, const Machine& machine, PipelineProblems& problems) {
  if (spec.virtual_placement) return;
  // A stage cannot run on a node of memory alone.
  std::vector<std::uint32_t> nodes;
  for (const NumaNode& node : machine.nodes) {
    if (!node.cpus.empty()) nodes.push_back(node.index);
  }
  for (const StageSpec& stage : spec.stages) {
    const std::string path = "stages." + stage.name;
    if (stage.numa_node && !std::binary_search(nodes.begin(), nodes.end(), *stage.numa_node)) {
      const bool known = machine.find_node(*stage.numa_node) != nullptr;
      problems.add(stage.numa_node_origin, path + ".numa_node",
                   (known ? "no CPUs of NUMA node " : "no NUMA node ") + std::to_string(*stage.numa_node) +
                       " may be used on " + machine.name + "; expected one of " + format_cpu_list(nodes));
    }
    std::vector<std::uint32_t> missing;
    std::set_difference(stage.cpus.begin(), stage.cpus.end(), machine.cpus.begin(), machine.cpus.end(),
                        std::back_inserter(missing));
    if (!missing.empty()) {
      problems.add(stage.cpus_origin, path + ".cpus",
                   "CPUs " + format_cpu_list(missing) + " may not be used on " + machine.name +
                       "; expected some of " + format_cpu_list(machine.cpus));
    }
  }
}

void check_memory(const PipelineSpec& spec, const Machine& machine, PipelineProblems& problems) {
  const std::pair<const char*, const SizeSetting*> settings[] = {{"memory.static", &spec.memory.static_pool},
                                                                 {"memory.dynamic", &spec.memory.dynamic},
                                                                 {"memory.scratch", &spec.memory.scratch},
                                                                 {"memory.experts", &spec.memory.experts}};
  const std::uint64_t usable = machine.usable_memory();
  std::uint64_t sum = 0;
  std::pair<const char*, const SizeSetting*> largest{};
  std::string list;
  for (const auto& [path, size] : settings) {
    if (size->kind != SizeSetting::Kind::bytes) continue;
    sum = checked_add(sum, size->bytes).value_or(~std::uint64_t{0});
    if (largest.second == nullptr || size->bytes > largest.second->bytes) largest = {path, size};
    list += (list.empty() ? "" : ", ") + std::string(path) + " " + format_bytes(size->bytes);
  }
  if (sum <= usable) return;
  problems.add(largest.second->origin, largest.first,
               "the memory given (" + list + ") is more than " + machine.name + " has; expected at most " +
                   format_bytes(usable) + ", " + usable_memory_text(machine));
}

}  // namespace colibri
