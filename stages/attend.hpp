// attend: attention of each layer, and the whole of the layers without experts.
#pragma once

#include <cstdint>
#include <memory>

#include <colibri/registry.hpp>

namespace colibri {

extern const StageInfo kAttendInfo;
std::unique_ptr<Stage> create_attend();
std::uint64_t attend_memory_bytes(const PlanInputs& inputs);

}  // namespace colibri
