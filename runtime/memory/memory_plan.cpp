#include "runtime/memory/memory_plan.hpp"

#include <algorithm>
#include <cstdio>

#include "io/text/json_output.hpp"
#include "runtime/engine/message_credits.hpp"
#include "runtime/memory/plan_refusals.hpp"
#include "runtime/memory/planner.hpp"
#include "stages/layer_list.hpp"

namespace colibri {
namespace {

// Columns wide enough for every line; stages of long names are the only long ones.
std::string table_of(const std::vector<PlanLine>& lines) {
  std::size_t width = 44;
  for (const PlanLine& line : lines) width = std::max(width, line.what.size());
  std::string text;
  for (const PlanLine& line : lines) {
    char row[256];
    std::snprintf(row, sizeof row, "  %-8s  %-*s  %12s\n", line.pool.c_str(), static_cast<int>(width),
                  line.what.c_str(), format_bytes(line.bytes).c_str());
    text += row;
  }
  return text;
}

// What a plan is made from, and plans for different numbers of rows.

}  // namespace

std::string MemoryPlan::to_table() const {
  std::vector<PlanLine> all = lines;
  all.push_back({"total", "planned", total_bytes});
  all.push_back({"", "usable on this machine", usable_bytes});
  return table_of(all);
}

std::string MemoryPlan::to_json() const {
  std::string text = "{\n";
  auto field = [&text](std::string_view name, std::uint64_t value) {
    text += "  \"" + std::string(name) + "\": " + std::to_string(value) + ",\n";
  };
  field("max_rows", inputs.max_rows);
  field("wave_rows", inputs.wave_rows);
  field("in_flight", inputs.in_flight);
  field("threads", inputs.threads);
  field("static_bytes", static_bytes);
  field("dynamic_bytes", dynamic_bytes);
  field("kv_pages", kv_pages);
  field("kv_page_bytes", kv_page_bytes);
  field("scratch_bytes", scratch_bytes);
  field("expert_slots", slots);
  field("transit_slots", transit);
  field("slot_bytes", slot_bytes);
  field("experts_bytes", slots * slot_bytes);
  field("process_bytes", process_bytes);
  field("usable_bytes", usable_bytes);
  text += "  \"slot_shares\": [";
  for (const PlannedShare& planned : slot_shares) {
    text += text.back() == '[' ? "{\"stage\": " : ", {\"stage\": ";
    append_json_string(text, planned.stage);
    text += ", \"slots\": " + std::to_string(planned.share.slots) +
            ", \"transit\": " + std::to_string(planned.share.transit) + "}";
  }
  text += "],\n";
  text += "  \"planned_bytes\": " + std::to_string(total_bytes) + "\n}\n";
  return text;
}

Result<MemoryPlan> plan_memory(const Container& container, const PipelineSpec& pipeline,
                               const Registry& registry, const Machine& machine, std::uint64_t process_bytes,
                               const Workload& workload, PipelineProblems* problems) {
  const Planner planner{container,
                        pipeline,
                        registry,
                        workload,
                        machine.usable_memory(),
                        process_bytes,
                        place_pipeline(pipeline, registry.infos(), machine)};
  // Sizes are counted for what can circulate only.
  PipelineProblems graph;
  check_partitions(pipeline, registry.infos(), container.spec().num_experts, graph);
  check_layer_lists(pipeline, registry.infos(), container.spec(), graph);
  if (graph.lines.empty()) {
    const std::uint32_t rows = pipeline.steps.max_rows.value_or(kDefaultMaxRows);
    check_circulation(pipeline, planner.inputs(rows), graph);
  }
  if (problems != nullptr) {
    problems->lines.insert(problems->lines.end(), graph.lines.begin(), graph.lines.end());
  }
  COLIBRI_RETURN_IF_ERROR(graph.to_status());
  PlanRefusals refusals(problems);
  MemoryPlan plan = planner.plan(
      pipeline.steps.max_rows ? *pipeline.steps.max_rows : rows_that_read_least(planner), refusals);
  if (problems != nullptr) check_edge_capacities(pipeline, registry.infos(), plan.credits, *problems);
  COLIBRI_RETURN_IF_ERROR(Status(refusals.first()));
  return plan;
}

}  // namespace colibri