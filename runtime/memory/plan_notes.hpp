// What a model makes of automatic values, for `check --dump`: sizes of pools, steps, slots and edges.
#pragma once

#include "runtime/memory/memory_plan.hpp"

namespace colibri {

// What steps come to; for a plan, or for what a file declares without a model.
void add_step_notes(const StepsSpec& steps, const PlanInputs& inputs, ValueNotes& notes);

// Adds to the notes of the machine; those of the memory of experts are replaced by the exact ones.
void add_plan_notes(const PipelineSpec& spec, StageInfos kinds, const Machine& machine,
                    const MemoryPlan& plan, ValueNotes& notes);

}  // namespace colibri
