// attend: attention of each layer, and the whole of the layers without experts.
#pragma once

#include <colibri/registry.hpp>
#include <cstdint>
#include <memory>

namespace colibri {

extern const StageInfo kAttendInfo;
std::unique_ptr<Stage> create_attend();
std::uint64_t attend_memory_bytes(const PlanInputs& inputs);

}  // namespace colibri
