// What automatic values of a pipeline come to on a machine, and why, for `check --dump`.
#pragma once

#include <string>

#include "topology/machine.hpp"
#include "topology/pipeline_spec.hpp"
#include "topology/placement.hpp"

namespace colibri {

// Threads and places of stages; the memory that is there. Sizes that depend on the model are not known here.
ValueNotes machine_notes(const PipelineSpec& spec, const Machine& machine, const PlacementPlan& plan);

// Says when more threads were given than there are CPUs; empty otherwise.
std::string threads_advice(const PipelineSpec& spec, const Machine& machine);

// "90 % of what is free of cgroup memory.max of /job": what the usable memory is a share of.
std::string usable_memory_text(const Machine& machine);

}  // namespace colibri
