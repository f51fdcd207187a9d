// Planner: what a plan is made from; makes plans for different numbers of rows.
#pragma once

#include <colibri/registry.hpp>
#include <cstdint>

#include "runtime/memory/memory_plan.hpp"
#include "runtime/memory/plan_refusals.hpp"
#include "topology/placement.hpp"

namespace colibri {

inline constexpr std::uint32_t kDefaultMaxRows = 512;
inline constexpr std::uint32_t kDefaultWaveRows = 64;

// Everything referred to outlives it. The partitions of the experts were checked.
struct Planner {
  const Container& container;
  const PipelineSpec& pipeline;
  const Registry& registry;
  const Workload& workload;
  std::uint64_t usable_bytes = 0;
  std::uint64_t process_bytes = 0;
  PlacementPlan placement;

  PlanInputs inputs(std::uint32_t max_rows) const;
  // max_rows was checked to circulate (check_circulation).
  MemoryPlan plan(std::uint32_t max_rows, PlanRefusals& refusals) const;
};

// Rows of the steps in which the workload reads least: the default without a workload, or when nothing else
// fits.
std::uint32_t rows_that_read_least(const Planner& planner);

}  // namespace colibri
