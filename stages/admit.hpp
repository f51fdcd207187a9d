// admit: continuous batching. Turns requests into steps and waves; owns sequences and KV pages.
#pragma once

#include <colibri/registry.hpp>
#include <cstdint>
#include <memory>

namespace colibri {

extern const StageInfo kAdmitInfo;
std::unique_ptr<Stage> create_admit();
std::uint64_t admit_memory_bytes(const PlanInputs& inputs);

}  // namespace colibri
