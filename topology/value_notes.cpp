#include "topology/value_notes.hpp"

#include "topology/cpu_list.hpp"
#include "topology/param_value.hpp"

namespace colibri {
namespace {

std::string threads_note(const Machine& machine) {
  const std::string threads = std::to_string(machine.default_threads()) + ": ";
  if (machine.default_threads() < machine.cpus.size()) {
    return threads + "CPU quota of " + number_text(machine.cpu_quota) + ", " + machine.cpu_quota_origin;
  }
  return threads + "CPUs " + format_cpu_list(machine.cpus) + " of " + machine.cpus_origin;
}

void add_stage_notes(const StageSpec& stage, const PlannedPlacement& placement, std::uint32_t workers,
                     ValueNotes& notes) {
  const std::string path = "stages." + stage.name + ".";
  const std::string where = " of placement " + placement.name;
  if (!stage.workers) {
    notes[path + "workers"] = std::to_string(workers) + ": all threads" + where;
  } else if (*stage.workers > workers) {
    notes[path + "workers"] = std::to_string(workers) + ": no more threads" + where;
  }
  const std::string cpus = placement.cpus.empty() ? "any" : format_cpu_list(placement.cpus);
  // Given CPUs are told only where others stand for them.
  if (stage.cpus != placement.cpus) notes[path + "cpus"] = cpus + ": those" + where;
  if (!stage.numa_node && placement.node) {
    notes[path + "numa_node"] = std::to_string(*placement.node) + ": that" + where;
  }
}

}  // namespace

std::string usable_memory_text(const Machine& machine) {
  if (machine.limit_counts()) return "90 % of what is free of " + machine.memory_limit_origin;
  return "80 % of the available memory";
}

std::string threads_advice(const PipelineSpec& spec, const Machine& machine) {
  if (spec.threads.value_or(0) <= machine.cpus.size()) return {};
  return std::to_string(*spec.threads) + " threads on " + std::to_string(machine.cpus.size()) +
         (machine.cpus.size() == 1 ? " CPU" : " CPUs") +
         " wait for each other; lower threads or set it to auto";
}

ValueNotes machine_notes(const PipelineSpec& spec, const Machine& machine, const PlacementPlan& plan) {
  ValueNotes notes;
  if (!spec.threads) notes["threads"] = threads_note(machine);
  if (const std::string advice = threads_advice(spec, machine); !advice.empty()) notes["threads"] = advice;
  for (std::size_t i = 0; i < spec.stages.size(); ++i) {
    add_stage_notes(spec.stages[i], plan.placements[plan.placement_of_stage[i]], plan.workers_of_stage[i],
                    notes);
  }
  if (spec.memory.experts.kind == SizeSetting::Kind::automatic) {
    notes["memory.experts"] = "at most " + format_bytes(machine.usable_memory()) + ": " +
                              usable_memory_text(machine) + ", minus the other pools";
  }
  return notes;
}

}  // namespace colibri
