#include "runtime/memory/plan_notes.hpp"

#include "runtime/engine/message_credits.hpp"
#include "topology/problem_text.hpp"
#include "topology/value_notes.hpp"

namespace colibri {
namespace {

std::string experts_note(const MemorySpec& memory, const Machine& machine, const MemoryPlan& plan) {
  std::string note = format_bytes(plan.slots * plan.slot_bytes) + ": " + std::to_string(plan.slots) +
                     " slots of " + format_bytes(plan.slot_bytes) + ", " + std::to_string(plan.transit) +
                     " for transit";
  if (memory.experts.kind == SizeSetting::Kind::automatic) {
    note += "; all experts, or " + format_bytes(plan.usable_bytes) + " (" + usable_memory_text(machine) +
            ") minus the other pools";
  }
  return note;
}

}  // namespace

void add_step_notes(const StepsSpec& steps, const PlanInputs& inputs, ValueNotes& notes) {
  if (!steps.max_rows) notes["steps.max_rows"] = std::to_string(inputs.max_rows);
  if (steps.wave_rows != inputs.wave_rows) {
    notes["steps.wave_rows"] =
        std::to_string(inputs.wave_rows) + (steps.wave_rows ? ": no wave has more rows than its step" : "");
  }
  if (!steps.in_flight) notes["steps.in_flight"] = std::to_string(inputs.in_flight);
}

void add_plan_notes(const PipelineSpec& spec, StageInfos kinds, const Machine& machine,
                    const MemoryPlan& plan, ValueNotes& notes) {
  add_step_notes(spec.steps, plan.inputs, notes);
  notes["memory.static"] = format_bytes(plan.static_bytes) + ": dense weights";
  notes["memory.dynamic"] = format_bytes(plan.dynamic_bytes) + ": " + std::to_string(plan.kv_pages) +
                            " KV pages of " + format_bytes(plan.kv_page_bytes) + ", steps and hints";
  notes["memory.scratch"] = format_bytes(plan.scratch_bytes) + ": working memory of the stages";
  notes["memory.experts"] = experts_note(spec.memory, machine, plan);
  for (std::size_t i = 0; i < spec.edges.size(); ++i) {
    const EdgeSpec& edge = spec.edges[i];
    if (edge.capacity) continue;
    for (const StageSpec& stage : spec.stages) {
      const StageInfo* info = stage.name == edge.from_stage ? find_kind(kinds, stage.kind) : nullptr;
      if (info == nullptr) continue;
      for (const PortInfo& port : info->outputs) {
        if (port.name != edge.from_port) continue;
        notes["edges[" + std::to_string(i) + "].capacity"] =
            std::to_string(automatic_capacity(port.type, plan.credits)) + " messages";
      }
    }
  }
}

}  // namespace colibri
