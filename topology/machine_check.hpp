// What a pipeline asks of a machine that the machine lacks: CPUs, NUMA nodes, memory.
#pragma once

#include "topology/machine.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {

// Adds a problem for each stage placed on CPUs or a NUMA node that the machine does not let us use. With
// virtual placement there is none.
void check_placement(const PipelineSpec& spec, const Machine& machine, PipelineProblems& problems);

// Adds a problem when the sizes given for pools and experts are together more than the machine has. Sizes
// that depend on the model (auto, shares, min) are not known here.
void check_memory(const PipelineSpec& spec, const Machine& machine, PipelineProblems& problems);

}  // namespace colibri
