#include "runtime/memory/memory_plan.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "io/read/aligned_region.hpp"
#include "io/text/json_output.hpp"
#include "runtime/engine/message_credits.hpp"
#include "runtime/memory/slot_shares.hpp"
#include "runtime/memory/step_buffers.hpp"
#include "topology/pipeline_graph.hpp"

namespace colibri {
namespace {

constexpr std::uint32_t kDefaultMaxRows = 512;
constexpr std::uint32_t kDefaultWaveRows = 64;
constexpr std::uint64_t kAutoTokensPerRow = 512;  // KV for this much context a row, when there is room
constexpr std::uint64_t kAutoKvBytesSmallModel = 256ULL << 20;  // KV may exceed a small model up to this
constexpr std::uint64_t kStackBytes = 256 * 1024;               // touched part of a thread's stack
constexpr std::uint64_t kReadThreads = 16;                      // of one fetch, at most by default
constexpr std::uint64_t kFixedOverheadBytes = 8ULL << 20;       // rings, metrics, allocator slack

std::uint64_t rounded(std::uint64_t bytes) {
  return checked_round_up<std::uint64_t>(bytes, AlignedRegion::kAlignment).value_or(bytes);
}

std::string_view param_of(const PipelineSpec& pipeline, const Registry& registry, std::string_view kind,
                          std::string_view param) {
  for (const StageSpec& stage : pipeline.stages) {
    const StageKind* known = registry.find(stage.kind);
    if (stage.kind == kind && known != nullptr) return effective_param(stage, *known->info, param);
  }
  return {};
}

PlanInputs plan_inputs(const Container& container, const PipelineSpec& pipeline, const Registry& registry,
                       const PlacementPlan& placement) {
  PlanInputs inputs;
  inputs.spec = &container.spec();
  inputs.max_rows = pipeline.steps.max_rows.value_or(kDefaultMaxRows);
  inputs.wave_rows = std::min(pipeline.steps.wave_rows.value_or(kDefaultWaveRows), inputs.max_rows);
  // auto: one step; a second one would read more, and pays only where compute exceeds the disk's time.
  inputs.in_flight = pipeline.steps.in_flight.value_or(1);
  inputs.threads = placement.most_threads();
  const std::string_view depth = param_of(pipeline, registry, "predict", "depth");
  std::from_chars(depth.data(), depth.data() + depth.size(), inputs.hint_depth);
  inputs.kv_format = param_of(pipeline, registry, "attend", "kv_type") == "bf16" ? kernels::KvFormat::bf16
                                                                                 : kernels::KvFormat::f32;
  return inputs;
}

void plan_stages(MemoryPlan& plan, const PipelineSpec& pipeline, const Registry& registry) {
  for (const StageSpec& stage : pipeline.stages) {
    const StageKind* kind = registry.find(stage.kind);
    PlanInputs inputs = plan.inputs;
    inputs.param = [&](std::string_view name) { return effective_param(stage, *kind->info, name); };
    const std::uint64_t bytes = kind->memory_bytes != nullptr ? kind->memory_bytes(inputs) : 0;
    plan.stage_bytes.push_back((bytes + 63) / 64 * 64);
    plan.scratch_bytes += plan.stage_bytes.back();
    if (bytes > 0) plan.lines.push_back({"scratch", "stage " + stage.name, bytes});
  }
  plan.scratch_bytes = rounded(plan.scratch_bytes);
}

// Whether an edge of the pipeline carries messages of this type.
bool carries(const PipelineSpec& pipeline, const Registry& registry, MessageType type) {
  const std::vector<const StageInfo*> infos = registry.infos();
  const PipelineGraph graph = resolve_pipeline(pipeline, infos);
  return std::any_of(graph.edges.begin(), graph.edges.end(), [&](const ResolvedEdge& edge) {
    return edge.complete() && graph.output(edge).type == type;
  });
}

// What is refused: the first as the plan's error, each with its place where problems are collected.
class Refusals {
 public:
  explicit Refusals(PipelineProblems* problems) : problems_(problems) {}

  // The needed number is exact, so that it can be copied into a file.
  void too_small(std::string_view pool, const SizeSetting& setting, std::uint64_t given,
                 std::uint64_t needed) {
    const std::string path = "memory." + std::string(pool);
    const std::string what = "is too small: " + format_bytes(given) + " given, " + format_bytes(needed) +
                             " (" + std::to_string(needed) + " bytes) needed; raise it or set it to auto";
    if (first_.is_ok()) first_ = Status(ErrorCode::invalid_input, path + " " + what);
    if (problems_ != nullptr) problems_->add(setting.origin, path, what);
  }

  void does_not_fit(const MemoryPlan& plan) {
    const std::string what = "the plan does not fit: " + format_bytes(plan.total_bytes) + " planned, " +
                             format_bytes(plan.usable_bytes) +
                             " usable (80 % of what is free or the cgroup allows); lower --experts-memory, "
                             "--max-rows or memory.dynamic";
    if (first_.is_ok()) first_ = Status(ErrorCode::capacity, what + "\n" + plan.to_table());
    if (problems_ != nullptr) problems_->add({}, "memory", what);
  }

  const Status& first() const noexcept { return first_; }

 private:
  PipelineProblems* problems_;
  Status first_;
};

// What a pool was set to by hand; a share is one of the usable memory. nullopt: as much as is needed.
std::optional<std::uint64_t> set_bytes(const SizeSetting& setting, std::uint64_t usable) {
  if (setting.kind == SizeSetting::Kind::bytes) return setting.bytes;
  if (setting.kind != SizeSetting::Kind::percent) return std::nullopt;
  return static_cast<std::uint64_t>(static_cast<double>(usable) * setting.percent / 100);
}

void check_pool(std::string_view pool, const SizeSetting& setting, std::uint64_t usable, std::uint64_t needed,
                Refusals& refusals) {
  const auto given = set_bytes(setting, usable);
  if (given && *given < needed) refusals.too_small(pool, setting, *given, needed);
}

// KV pages: as the dynamic pool says, else for a good context of every row within a quarter of the machine
// and the size of the model, and in any case for one request of full length.
void plan_kv(MemoryPlan& plan, const PipelineSpec& pipeline, std::uint64_t model_bytes, std::uint64_t fixed,
             Refusals& refusals) {
  const ModelSpec& spec = *plan.inputs.spec;
  plan.kv_layer_bytes = kernels::kv_page_layer_bytes(plan.inputs.kv_format, spec.attention.num_kv_heads,
                                                     spec.attention.head_dim);
  plan.kv_page_bytes = plan.kv_layer_bytes * spec.num_layers();
  const std::uint64_t longest =
      (std::uint64_t{spec.max_seq_len} + kernels::kKvPagePositions - 1) / kernels::kKvPagePositions;
  const SizeSetting& setting = pipeline.memory.dynamic;
  const auto given = set_bytes(setting, plan.usable_bytes);
  if (!given) {
    const std::uint64_t rows = std::uint64_t{plan.inputs.max_rows} * plan.inputs.in_flight;
    const std::uint64_t wanted = rows * kAutoTokensPerRow / kernels::kKvPagePositions;
    const std::uint64_t most = std::min(plan.usable_bytes / 4, std::max(model_bytes, kAutoKvBytesSmallModel));
    const std::uint64_t affordable = most / std::max<std::uint64_t>(plan.kv_page_bytes, 1);
    const std::uint64_t full =
        std::min(longest, plan.usable_bytes / 2 / std::max<std::uint64_t>(plan.kv_page_bytes, 1));
    plan.kv_pages =
        std::max({full, setting.kind == SizeSetting::Kind::minimum ? 0 : std::min(wanted, affordable),
                  std::uint64_t{1}});
  } else {
    const std::uint64_t needed = fixed + plan.kv_page_bytes;
    if (*given < needed) refusals.too_small("dynamic", setting, *given, needed);
    plan.kv_pages = (std::max(*given, needed) - fixed) / plan.kv_page_bytes;
  }
  plan.kv_pages =
      std::min<std::uint64_t>(plan.kv_pages, 0xffffffffU / spec.num_layers());  // blocks of KvRegion
}

void plan_slots(MemoryPlan& plan, const Container& container, const PipelineSpec& pipeline,
                const std::vector<FetchPart>& fetches, std::uint64_t left, Refusals& refusals) {
  const ModelSpec& spec = container.spec();
  const std::uint64_t records = std::uint64_t{spec.num_moe_layers()} * spec.num_experts;
  const std::uint64_t least = std::max<std::uint64_t>(fetches.size(), 1);  // one for each fetch
  plan.slot_bytes = container.layout().record_bytes;
  const SizeSetting& setting = pipeline.memory.experts;
  std::uint64_t bytes = 0;
  switch (setting.kind) {
    case SizeSetting::Kind::automatic: bytes = left; break;
    case SizeSetting::Kind::bytes:
      if (setting.bytes < least * plan.slot_bytes) {
        refusals.too_small("experts", setting, setting.bytes, least * plan.slot_bytes);
      }
      bytes = setting.bytes;
      break;
    case SizeSetting::Kind::percent:
      bytes =
          static_cast<std::uint64_t>(static_cast<double>(records * plan.slot_bytes) * setting.percent / 100);
      break;
    case SizeSetting::Kind::minimum: bytes = least * plan.slot_bytes; break;
  }
  plan.slots = std::clamp<std::uint64_t>(bytes / plan.slot_bytes, least, records);
  const std::vector<SlotShare> shares = share_out_slots(fetches, plan.slots, plan.slot_bytes);
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    plan.transit += shares[i].transit;
    plan.slot_shares.push_back({fetches[i].stage, shares[i]});
    const std::string stage = fetches.size() > 1 ? fetches[i].stage + ": " : "";
    plan.lines.push_back({"experts",
                          stage + std::to_string(shares[i].slots) + " slots of " +
                              format_bytes(plan.slot_bytes) + ", " + std::to_string(shares[i].transit) +
                              " for transit",
                          shares[i].slots * plan.slot_bytes});
  }
}

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
                               PipelineProblems* problems) {
  MemoryPlan plan;
  plan.placement = place_pipeline(pipeline, registry.infos(), machine);
  plan.inputs = plan_inputs(container, pipeline, registry, plan.placement);
  // Sizes are counted for what can circulate only.
  PipelineProblems graph;
  check_partitions(pipeline, registry.infos(), container.spec().num_experts, graph);
  check_circulation(pipeline, plan.inputs, graph);
  if (problems != nullptr) {
    problems->lines.insert(problems->lines.end(), graph.lines.begin(), graph.lines.end());
  }
  COLIBRI_RETURN_IF_ERROR(graph.to_status());
  Refusals refusals(problems);
  plan.usable_bytes = machine.usable_memory();
  plan.max_seq_len = container.spec().max_seq_len;

  plan.static_bytes = rounded(container.dense_bytes());
  check_pool("static", pipeline.memory.static_pool, plan.usable_bytes, container.dense_bytes(), refusals);
  plan.lines.push_back({"static", "dense weights", container.dense_bytes()});

  plan.step_bytes = step_bytes(plan.inputs);
  // Without a predictor nothing takes the copies.
  if (carries(pipeline, registry, MessageType::residual_copy))
    plan.hint_batches = std::uint64_t{2} * plan.inputs.wave_credits();
  const std::uint64_t hints = plan.hint_batches * hint_batch_bytes(plan.inputs);
  const std::uint64_t steps = plan.inputs.in_flight * plan.step_bytes;
  // KV pages belong to sequences, and sequences to requests: a pipeline that takes none has none.
  if (carries(pipeline, registry, MessageType::request)) {
    plan_kv(plan, pipeline, container.dense_bytes() + container.expert_bytes(), steps + hints, refusals);
    plan.lines.push_back({"dynamic", "KV: " + std::to_string(plan.kv_pages) + " pages of 16 tokens",
                          plan.kv_pages * plan.kv_page_bytes});
  } else {
    check_pool("dynamic", pipeline.memory.dynamic, plan.usable_bytes, steps + hints, refusals);
  }
  plan.lines.push_back({"dynamic",
                        "steps: " + std::to_string(plan.inputs.in_flight) + " of " +
                            std::to_string(plan.inputs.max_rows) + " rows",
                        steps});
  if (hints > 0) plan.lines.push_back({"dynamic", "copies for the predictor", hints});
  plan.dynamic_bytes = rounded(plan.kv_pages * plan.kv_page_bytes) + rounded(steps + hints);

  plan_stages(plan, pipeline, registry);
  check_pool("scratch", pipeline.memory.scratch, plan.usable_bytes, plan.scratch_bytes, refusals);

  const std::vector<FetchPart> fetches = fetch_parts(pipeline, registry, container.spec());
  plan.process_bytes = process_bytes + kFixedOverheadBytes +
                       kStackBytes * (plan.placement.threads() + 2 +
                                      kReadThreads * std::max<std::uint64_t>(fetches.size(), 1));
  plan.lines.push_back({"process", "program, tables, stacks and rings", plan.process_bytes});
  const std::uint64_t others =
      plan.static_bytes + plan.dynamic_bytes + plan.scratch_bytes + plan.process_bytes;

  plan_slots(plan, container, pipeline, fetches, plan.usable_bytes > others ? plan.usable_bytes - others : 0,
             refusals);
  plan.total_bytes = others + rounded(plan.slots * plan.slot_bytes);
  if (plan.usable_bytes > 0 && plan.total_bytes > plan.usable_bytes) refusals.does_not_fit(plan);
  plan.credits = message_credits(plan.inputs, plan.hint_batches);
  if (problems != nullptr) check_edge_capacities(pipeline, registry.infos(), plan.credits, *problems);
  COLIBRI_RETURN_IF_ERROR(Status(refusals.first()));
  return plan;
}

}  // namespace colibri
