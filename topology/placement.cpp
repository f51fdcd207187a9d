// Stages that name the same CPUs come together; each such set gets threads, then memory follows
// the stages that work in it.
//
// Threads: one for each core where a NUMA node is named (arithmetic of experts gains nothing from
// SMT siblings), unless a stage's `workers` asks for more; one for each CPU where CPUs are named
// one by one; never more than the CPU quota.
#include "topology/placement.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "topology/cpu_list.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

using Cpus = std::vector<std::uint32_t>;

class Planner {
 public:
  Planner(const PipelineSpec& spec, StageInfos kinds, const Machine& machine)
      : spec_(spec), kinds_(kinds), machine_(machine) {
    for (const StageSpec& stage : spec.stages) {
      if (stage.numa_node) named_nodes_.insert(*stage.numa_node);
    }
  }

  PlacementPlan plan() {
    group_stages();
    for (PlannedPlacement& placement : plan_.placements) describe_neighbours(placement);
    describe_drives();
    for (std::size_t i = 0; i < spec_.stages.size(); ++i) {
      const std::uint32_t threads = plan_.placements[plan_.placement_of_stage[i]].threads;
      plan_.workers_of_stage.push_back(std::min(spec_.stages[i].workers.value_or(threads), threads));
    }
    place_memory();
    const bool placed = std::any_of(plan_.placements.begin(), plan_.placements.end(),
                                    [](const PlannedPlacement& one) { return !one.cpus.empty(); });
    if (spec_.virtual_placement && placed) {
      plan_.note = "virtual placement: CPUs and NUMA nodes of the pipeline stand for CPUs " +
                   format_cpu_list(machine_.cpus) + " of " + machine_.name + " in turn; memory is not bound";
    }
    return std::move(plan_);
  }

 private:
  // What a stage names, as CPUs of this machine; empty: nothing that is here.
  Cpus cpus_of(const StageSpec& stage) const {
    if (spec_.virtual_placement) return virtual_cpus_of(stage);
    if (!stage.numa_node) return common_cpus(stage.cpus, machine_.cpus);
    const NumaNode* node = machine_.find_node(*stage.numa_node);
    return node == nullptr ? Cpus{} : node->cpus;
  }

  // The CPUs here are dealt out in turn: to the nodes that the file names, or by the numbers of CPUs.
  Cpus virtual_cpus_of(const StageSpec& stage) const {
    const std::size_t count = machine_.cpus.size();
    std::set<std::uint32_t> cpus;
    if (count == 0) return {};
    if (stage.numa_node) {
      const auto rank =
          static_cast<std::size_t>(std::distance(named_nodes_.begin(), named_nodes_.find(*stage.numa_node)));
      cpus.insert(machine_.cpus[rank % count]);
      for (std::size_t i = rank; i < count; i += named_nodes_.size()) cpus.insert(machine_.cpus[i]);
    }
    for (const std::uint32_t cpu : stage.cpus) cpus.insert(machine_.cpus[cpu % count]);
    return {cpus.begin(), cpus.end()};
  }

  void group_stages() {
    // Stages of one placement: by the CPUs they get; by what they name where CPUs only stand for others.
    std::map<std::pair<std::optional<std::uint32_t>, Cpus>, std::size_t> known;
    for (const StageSpec& stage : spec_.stages) {
      const Cpus cpus = cpus_of(stage);
      const auto key = spec_.virtual_placement ? std::pair(stage.numa_node, stage.cpus)
                                               : std::pair(std::optional<std::uint32_t>(), cpus);
      const auto [at, added] = known.emplace(key, plan_.placements.size());
      plan_.placement_of_stage.push_back(at->second);
      if (added) plan_.placements.push_back(cpus.empty() ? default_placement() : pinned(stage, cpus));
    }
    for (std::size_t i = 0; i < spec_.stages.size(); ++i) raise_for_workers(spec_.stages[i], i);
    for (PlannedPlacement& placement : plan_.placements) apply_quota(placement);
  }

  PlannedPlacement default_placement() const {
    PlannedPlacement placement{
        .name = "default", .cpus = {}, .node = {}, .reason = "no numa_node or cpus: not pinned; "};
    if (spec_.threads) {
      placement.threads = *spec_.threads;
      placement.reason += "threads is given";
    } else {
      placement.threads = std::max<std::uint32_t>(static_cast<std::uint32_t>(machine_.cpus.size()), 1);
      placement.reason += "a thread for each of " + counted(machine_.cpus.size(), "CPU");
    }
    return placement;
  }

  PlannedPlacement pinned(const StageSpec& stage, const Cpus& cpus) const {
    PlannedPlacement placement;
    placement.cpus = cpus;
    if (!spec_.virtual_placement) placement.node = node_of(cpus);
    const std::string of_stage = " of stage " + stage.name + ": ";
    if (stage.numa_node) {
      const std::size_t cores = cores_of(cpus);
      placement.name = "node " + std::to_string(*stage.numa_node);
      placement.threads = static_cast<std::uint32_t>(cores);
      placement.reason = "numa_node" + of_stage + "a thread for each of " + counted(cores, "core");
      if (cores < cpus.size())
        placement.reason += ", none for " + counted(cpus.size() - cores, "SMT sibling");
    } else {
      placement.name = "cpus " + format_cpu_list(stage.cpus);
      placement.threads = static_cast<std::uint32_t>(cpus.size());
      placement.reason = "cpus" + of_stage + "a thread for each of " + counted(cpus.size(), "CPU");
    }
    return placement;
  }

  std::size_t cores_of(const Cpus& cpus) const {
    const auto count = static_cast<std::size_t>(
        std::count_if(machine_.cores.begin(), machine_.cores.end(),
                      [&](const Core& core) { return !common_cpus(core.cpus, cpus).empty(); }));
    return count == 0 ? cpus.size() : count;
  }

  std::optional<std::uint32_t> node_of(const Cpus& cpus) const {
    for (const NumaNode& node : machine_.nodes) {
      if (common_cpus(node.cpus, cpus).size() == cpus.size()) return node.index;
    }
    return std::nullopt;
  }

  void raise_for_workers(const StageSpec& stage, std::size_t index) {
    PlannedPlacement& placement = plan_.placements[plan_.placement_of_stage[index]];
    const auto most = static_cast<std::uint32_t>(placement.cpus.size());
    const std::uint32_t wanted = std::min(stage.workers.value_or(0), most);
    if (wanted <= placement.threads) return;
    placement.threads = wanted;
    placement.reason += "; " + std::to_string(wanted) + " for workers of stage " + stage.name;
  }

  void apply_quota(PlannedPlacement& placement) const {
    // A number of threads that was given by hand is not a matter of the machine.
    if (placement.cpus.empty() && spec_.threads) return;
    const std::uint32_t allowed = machine_.threads_for(placement.threads);
    if (allowed >= placement.threads) return;
    placement.threads = allowed;
    placement.reason += "; " + std::to_string(allowed) + " by CPU quota: " + machine_.cpu_quota_origin;
  }

  // CPUs, or cores, that other pinned placements use too: allowed, but seldom meant.
  void describe_neighbours(PlannedPlacement& placement) const {
    for (const PlannedPlacement& other : plan_.placements) {
      if (&other == &placement || other.cpus.empty()) continue;
      if (const Cpus shared = common_cpus(placement.cpus, other.cpus); !shared.empty()) {
        placement.reason += "; shares CPUs " + format_cpu_list(shared) + " with " + other.name;
        continue;
      }
      Cpus siblings;
      for (const Core& core : machine_.cores) {
        const Cpus mine = common_cpus(core.cpus, placement.cpus);
        if (!common_cpus(core.cpus, other.cpus).empty())
          siblings.insert(siblings.end(), mine.begin(), mine.end());
      }
      std::sort(siblings.begin(), siblings.end());
      if (siblings.empty()) continue;
      placement.reason +=
          "; CPUs " + format_cpu_list(siblings) + " are SMT siblings of CPUs of " + other.name;
    }
  }

  // Where stages that own slots, and so read, are pinned to one node: whether a drive is near to it.
  void describe_drives() {
    std::set<std::size_t> reading;
    for (std::size_t i = 0; i < spec_.stages.size(); ++i) {
      const StageInfo* info = find_kind(kinds_, spec_.stages[i].kind);
      if (info != nullptr && info->memory.slots) reading.insert(plan_.placement_of_stage[i]);
    }
    for (const std::size_t place : reading) {
      PlannedPlacement& placement = plan_.placements[place];
      if (!placement.node) continue;
      std::string near, far;
      for (const Device& device : machine_.devices) {
        if (device.kind != Device::Kind::drive || !device.node) continue;
        if (device.node == placement.node) {
          near += " " + device.name;
        } else {
          far += " " + device.name + " is near node " + std::to_string(*device.node) + ",";
        }
      }
      if (!near.empty()) placement.reason += "; near drive" + near;
      if (near.empty() && !far.empty())
        placement.reason += "; no drive is near," + far.substr(0, far.size() - 1);
    }
  }

  // Nodes on which a stage may run.
  Cpus nodes_of_stage(std::size_t index) const {
    const Cpus& cpus = plan_.placements[plan_.placement_of_stage[index]].cpus;
    Cpus nodes;
    for (const NumaNode& node : machine_.nodes) {
      if (cpus.empty() ? !node.cpus.empty() : !common_cpus(node.cpus, cpus).empty())
        nodes.push_back(node.index);
    }
    return nodes;
  }

  // Why nothing is bound; empty when memory follows the stages.
  std::string unbound_reason() const {
    if (spec_.virtual_placement) return "virtual placement: not bound";
    if (machine_.nodes.size() <= 1 && named_nodes_.empty())
      return "one NUMA node, and none is named: not bound";
    return {};
  }

  void place_memory() {
    const std::string unbound = unbound_reason();
    for (std::size_t i = 0; i < spec_.stages.size(); ++i) {
      MemoryBinding binding{{}, unbound};
      if (unbound.empty()) {
        binding.nodes = nodes_of_stage(i);
        binding.reason = "where the stage runs";
      }
      plan_.memory_of_stage.push_back(std::move(binding));
    }
    plan_.dense = shared_memory(&MemoryUse::dense, unbound);
    plan_.kv = shared_memory(&MemoryUse::kv, unbound);
    plan_.steps = shared_memory(&MemoryUse::steps, unbound);
  }

  MemoryBinding shared_memory(bool MemoryUse::*region, const std::string& unbound) const {
    if (!unbound.empty()) return {{}, unbound};
    std::set<std::uint32_t> nodes;
    std::string users;
    for (std::size_t i = 0; i < spec_.stages.size(); ++i) {
      const StageInfo* info = find_kind(kinds_, spec_.stages[i].kind);
      if (info == nullptr || !(info->memory.*region)) continue;
      users += (users.empty() ? "" : ", ") + spec_.stages[i].name;
      nodes.insert(plan_.memory_of_stage[i].nodes.begin(), plan_.memory_of_stage[i].nodes.end());
    }
    if (users.empty()) return {{}, "no stage works in it: not bound"};
    return {{nodes.begin(), nodes.end()},
            "where " + users + (users.find(',') == std::string::npos ? " runs" : " run")};
  }

  const PipelineSpec& spec_;
  StageInfos kinds_;
  const Machine& machine_;
  std::set<std::uint32_t> named_nodes_;
  PlacementPlan plan_;
};

}  // namespace

std::uint32_t PlacementPlan::threads() const noexcept {
  std::uint32_t sum = 0;
  for (const PlannedPlacement& placement : placements) sum += placement.threads;
  return sum;
}

std::uint32_t PlacementPlan::most_threads() const noexcept {
  std::uint32_t most = 1;
  for (const PlannedPlacement& placement : placements) most = std::max(most, placement.threads);
  return most;
}

PlacementPlan place_pipeline(const PipelineSpec& spec, StageInfos kinds, const Machine& machine) {
  return Planner(spec, kinds, machine).plan();
}

}  // namespace colibri
