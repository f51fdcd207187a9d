// compute: the FFN of an expert over all rows of the step that picked it.
#pragma once

#include <colibri/registry.hpp>
#include <memory>

namespace colibri {

extern const StageInfo kComputeInfo;
std::unique_ptr<Stage> create_compute();
std::uint64_t compute_memory_bytes(const PlanInputs& inputs);

}  // namespace colibri
