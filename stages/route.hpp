// route: the exact router. For each wave the picks, their weights and what must be read.
#pragma once

#include <memory>

#include <colibri/registry.hpp>

namespace colibri {

extern const StageInfo kRouteInfo;
std::unique_ptr<Stage> create_route();
std::uint64_t route_memory_bytes(const PlanInputs& inputs);

}  // namespace colibri
