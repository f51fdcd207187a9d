// Rows for a job of prompts that are scored or embedded.
#include <algorithm>
#include <optional>

#include "runtime/engine/message_credits.hpp"
#include "runtime/memory/planner.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kMaximumStepRows = 1 << 20;  // as of the setting

// The plan, if nothing is against it.
std::optional<MemoryPlan> fitting_plan(const Planner& planner, std::uint32_t max_rows) {
  PipelineProblems problems;
  PlanRefusals refusals(&problems);
  check_circulation(planner.pipeline, planner.inputs(max_rows), problems);
  MemoryPlan made = planner.plan(max_rows, refusals);
  if (!problems.lines.empty()) return std::nullopt;
  return made;
}

}  // namespace

// Rows with which the job reads least. Each step reads the records that are not resident, so with S steps
// records + (S - 1) * (records - resident) are read; rows and residents share the memory.
std::uint32_t rows_that_read_least(const Planner& planner) {
  const Workload& workload = planner.workload;
  const ModelSpec& spec = planner.container.spec();
  const std::uint32_t wave_rows = planner.pipeline.steps.wave_rows.value_or(kDefaultWaveRows);
  const std::uint64_t most = std::min<std::uint64_t>(workload.rows, kMaximumStepRows);
  std::uint64_t fits = kDefaultMaxRows, too_many = most + 1;
  if (planner.usable_bytes == 0 || workload.rows <= fits || !fitting_plan(planner, kDefaultMaxRows)) {
    return kDefaultMaxRows;
  }
  while (too_many - fits > 1) {
    const std::uint64_t middle = fits + (too_many - fits) / 2;
    (fitting_plan(planner, static_cast<std::uint32_t>(middle)) ? fits : too_many) = middle;
  }
  const std::uint64_t records = std::uint64_t{spec.num_moe_layers()} * spec.num_experts;
  std::uint64_t best = kDefaultMaxRows, least = ~std::uint64_t{0};
  std::uint64_t steps = (workload.rows + fits - 1) / fits;
  for (std::uint64_t rows = fits; rows > kDefaultMaxRows; steps += 1 + steps / 8) {
    // Steps of equal size, of whole waves where that fits.
    const std::uint64_t equal = (workload.rows + steps - 1) / steps;
    rows = std::clamp<std::uint64_t>((equal + wave_rows - 1) / wave_rows * wave_rows, kDefaultMaxRows, fits);
    const std::optional<MemoryPlan> made = fitting_plan(planner, static_cast<std::uint32_t>(rows));
    if (!made) continue;
    const std::uint64_t reads = records + (steps - 1) * (records - (made->slots - made->transit));
    if (reads > least) continue;
    least = reads;
    best = rows;
  }
  return static_cast<std::uint32_t>(best);
}

}  // namespace colibri
