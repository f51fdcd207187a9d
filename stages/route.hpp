// route: the exact router. For each wave the picks, their weights and what must be read.
#pragma once

#include <colibri/registry.hpp>
#include <memory>

namespace colibri {

extern const StageInfo kRouteInfo;
std::unique_ptr<Stage> create_route();
std::uint64_t route_memory_bytes(const PlanInputs& inputs);

}  // namespace colibri
