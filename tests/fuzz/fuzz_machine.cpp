// A machine as hwloc exports it. What is accepted is in order, and stages can be placed on it.
#include <algorithm>

#include "tests/fuzz/fuzz_target.hpp"
#include "topology/cpu_list.hpp"
#include "topology/hardware.hpp"
#include "topology/placement.hpp"

namespace colibri::fuzz {
namespace {

bool inside(const std::vector<std::uint32_t>& cpus, const Machine& machine) {
  return std::includes(machine.cpus.begin(), machine.cpus.end(), cpus.begin(), cpus.end());
}

void check_accepted(const Machine& machine) {
  fuzz_check(!machine.cpus.empty() && machine.cpus.back() <= kMaximumCpu, "CPUs");
  fuzz_check(std::is_sorted(machine.cpus.begin(), machine.cpus.end()), "CPUs out of order");
  fuzz_check(!machine.nodes.empty(), "no nodes");
  for (const NumaNode& node : machine.nodes) fuzz_check(inside(node.cpus, machine), "a node with other CPUs");
  for (const Core& core : machine.cores) fuzz_check(inside(core.cpus, machine), "a core with other CPUs");
  for (const Cache& cache : machine.caches)
    fuzz_check(inside(cache.cpus, machine), "a cache with other CPUs");
  PipelineSpec spec;
  spec.stages = {{.name = "a", .kind = "a", .numa_node = machine.nodes.front().index},
                 {.name = "b", .kind = "b", .cpus = {machine.cpus.back()}},
                 {.name = "c", .kind = "c"}};
  const PlacementPlan plan = place_pipeline(spec, {}, machine);
  for (const PlannedPlacement& placement : plan.placements) {
    fuzz_check(placement.threads >= 1 && inside(placement.cpus, machine), "a placement that cannot be");
  }
  fuzz_check(!placement_table(spec, {}, machine, plan).empty(), "no table");
}

}  // namespace
}  // namespace colibri::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colibri;
  Machine machine;
  if (read_exported_hardware(fuzz::as_text(data, size), machine)) fuzz::check_accepted(machine);
  return 0;
}
