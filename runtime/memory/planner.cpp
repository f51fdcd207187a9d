// The sizes of one plan, pool by pool.
#include "runtime/memory/planner.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/read/aligned_region.hpp"
#include "runtime/engine/message_credits.hpp"
#include "runtime/memory/slot_shares.hpp"
#include "runtime/memory/step_buffers.hpp"
#include "stages/kv_pages.hpp"
#include "topology/pipeline_graph.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kMaximumHintBatches = 256;  // more are not copied: guesses for large steps are alike
constexpr std::uint64_t kAutoTokensPerRow = 512;    // KV for this much context a row, when there is room
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

// What a pool was set to by hand; a share is one of the usable memory. nullopt: as much as is needed.
std::optional<std::uint64_t> set_bytes(const SizeSetting& setting, std::uint64_t usable) {
  if (setting.kind == SizeSetting::Kind::bytes) return setting.bytes;
  if (setting.kind != SizeSetting::Kind::percent) return std::nullopt;
  return static_cast<std::uint64_t>(static_cast<double>(usable) * setting.percent / 100);
}

void check_pool(std::string_view pool, const SizeSetting& setting, std::uint64_t usable, std::uint64_t needed,
                PlanRefusals& refusals) {
  const auto given = set_bytes(setting, usable);
  if (given && *given < needed) refusals.too_small(pool, setting, *given, needed);
}

// Pages for steps full of prompts that are in no other step, with half as many prompts again as an average
// step has; and for the longest prompt when no step can hold it.
std::uint64_t pages_of_sweeps(const PlanInputs& inputs, const Workload& workload) {
  KvRegion kv;
  describe_kv_layers(*inputs.spec, kv);
  const std::uint64_t steps = (workload.rows + inputs.max_rows - 1) / inputs.max_rows;
  const std::uint64_t prompts = std::min(workload.prompts, workload.prompts * 3 / (2 * steps) + 1);
  // A prompt ends in a block that it does not fill.
  const std::uint64_t runs = kv_blocks_for(inputs.max_rows) + prompts;
  const std::uint64_t per_page = StepKvPages::runs_per_page(kv);
  const std::uint64_t longest = std::min<std::uint64_t>(workload.longest_rows, inputs.spec->max_seq_len);
  return inputs.in_flight * ((runs + per_page - 1) / per_page) +
         (longest > inputs.max_rows ? kv_blocks_for(longest) : 0);
}

// KV pages: as the dynamic pool says; as the workload needs; else for a good context of every row within a
// quarter of the machine and the size of the model, and in any case for one request of full length.
void plan_kv(MemoryPlan& plan, const PipelineSpec& pipeline, const Workload& workload,
             std::uint64_t model_bytes, std::uint64_t fixed, PlanRefusals& refusals) {
  const ModelSpec& spec = *plan.inputs.spec;
  plan.kv_layer_bytes = kernels::kv_page_layer_bytes(plan.inputs.kv_format, spec.attention.num_kv_heads,
                                                     spec.attention.head_dim);
  plan.kv_page_bytes = plan.kv_layer_bytes * spec.num_layers();
  const SizeSetting& setting = pipeline.memory.dynamic;
  const auto given = set_bytes(setting, plan.usable_bytes);
  if (given) {
    const std::uint64_t needed = fixed + plan.kv_page_bytes;
    if (*given < needed) refusals.too_small("dynamic", setting, *given, needed);
    plan.kv_pages = (std::max(*given, needed) - fixed) / plan.kv_page_bytes;
  } else {
    const std::uint64_t half = plan.usable_bytes / 2 / std::max<std::uint64_t>(plan.kv_page_bytes, 1);
    const std::uint64_t full = std::min<std::uint64_t>(kv_blocks_for(spec.max_seq_len), half);
    if (workload.rows > 0) {
      plan.kv_pages = std::min(pages_of_sweeps(plan.inputs, workload), std::max(full, half));
    } else {
      const std::uint64_t rows = std::uint64_t{plan.inputs.max_rows} * plan.inputs.in_flight;
      const std::uint64_t wanted = rows * kAutoTokensPerRow / kernels::kKvPagePositions;
      const std::uint64_t most =
          std::min(plan.usable_bytes / 4, std::max(model_bytes, kAutoKvBytesSmallModel));
      const std::uint64_t affordable = most / std::max<std::uint64_t>(plan.kv_page_bytes, 1);
      plan.kv_pages =
          std::max(full, setting.kind == SizeSetting::Kind::minimum ? 0 : std::min(wanted, affordable));
    }
    plan.kv_pages = std::max<std::uint64_t>(plan.kv_pages, 1);
  }
  plan.kv_pages =
      std::min<std::uint64_t>(plan.kv_pages, 0xffffffffU / spec.num_layers());  // blocks of KvRegion
}

void plan_slots(MemoryPlan& plan, const Container& container, const PipelineSpec& pipeline,
                const std::vector<FetchPart>& fetches, std::uint64_t left, PlanRefusals& refusals) {
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
    const TransitNeed need = fetches[i].transit_need(plan.slot_bytes);
    plan.slots_in_flight += std::max<std::uint64_t>(need.in_flight, 1);
    plan.slots_between_layers += need.between_layers;
    plan.slot_shares.push_back({fetches[i].stage, shares[i]});
    const std::string stage = fetches.size() > 1 ? fetches[i].stage + ": " : "";
    plan.lines.push_back({"experts",
                          stage + std::to_string(shares[i].slots) + " slots of " +
                              format_bytes(plan.slot_bytes) + ", " + std::to_string(shares[i].transit) +
                              " for transit",
                          shares[i].slots * plan.slot_bytes});
  }
}

}  // namespace

PlanInputs Planner::inputs(std::uint32_t max_rows) const {
  PlanInputs inputs;
  inputs.spec = &container.spec();
  inputs.max_rows = max_rows;
  inputs.wave_rows = std::min(pipeline.steps.wave_rows.value_or(kDefaultWaveRows), inputs.max_rows);
  // auto: one step. A batch in two steps goes through the weights twice: from the drive where they do not
  // fit, and from memory where they do, which costs a third of the tokens a second of a model larger than the
  // caches.
  inputs.in_flight = pipeline.steps.in_flight.value_or(1);
  inputs.threads = placement.most_threads();
  const std::string_view depth = param_of(pipeline, registry, "predict", "depth");
  std::from_chars(depth.data(), depth.data() + depth.size(), inputs.hint_depth);
  inputs.hint_depth = std::max(inputs.hint_depth, kSweepDepth);
  inputs.kv_format = param_of(pipeline, registry, "attend", "kv_type") == "bf16" ? kernels::KvFormat::bf16
                                                                                 : kernels::KvFormat::f32;
  return inputs;
}

MemoryPlan Planner::plan(std::uint32_t max_rows, PlanRefusals& refusals) const {
  MemoryPlan plan;
  plan.placement = placement;
  plan.inputs = inputs(max_rows);
  plan.usable_bytes = usable_bytes;
  plan.max_seq_len = container.spec().max_seq_len;

  plan.static_bytes = rounded(container.dense_bytes());
  check_pool("static", pipeline.memory.static_pool, plan.usable_bytes, container.dense_bytes(), refusals);
  plan.lines.push_back({"static", "dense weights", container.dense_bytes()});

  plan.step_bytes = step_bytes(plan.inputs);
  // Without a predictor nothing takes the copies.
  if (carries(pipeline, registry, MessageType::residual_copy))
    plan.hint_batches = std::min(std::uint64_t{2} * plan.inputs.wave_credits(), kMaximumHintBatches);
  const std::uint64_t hints = plan.hint_batches * hint_batch_bytes(plan.inputs);
  const std::uint64_t steps = plan.inputs.in_flight * plan.step_bytes;
  // KV pages belong to sequences, and sequences to requests: a pipeline that takes none has none.
  if (carries(pipeline, registry, MessageType::request)) {
    plan_kv(plan, pipeline, workload, container.dense_bytes() + container.expert_bytes(), steps + hints,
            refusals);
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

  const std::vector<FetchPart> fetches = fetch_parts(pipeline, registry, container.spec(), max_rows);
  plan.process_bytes = process_bytes + kFixedOverheadBytes +
                       kStackBytes * (plan.placement.threads() + 2 +
                                      kReadThreads * std::max<std::uint64_t>(fetches.size(), 1));
  plan.lines.push_back({"process", "program, tables, stacks and rings", plan.process_bytes});
  const std::uint64_t others =
      plan.static_bytes + plan.dynamic_bytes + plan.scratch_bytes + plan.process_bytes;

  // Whole pages of the region only: it is rounded up, and must still fit.
  const std::uint64_t left = plan.usable_bytes > others ? plan.usable_bytes - others : 0;
  plan_slots(plan, container, pipeline, fetches, left / AlignedRegion::kAlignment * AlignedRegion::kAlignment,
             refusals);
  plan.total_bytes = others + rounded(plan.slots * plan.slot_bytes);
  if (plan.usable_bytes > 0 && plan.total_bytes > plan.usable_bytes) refusals.does_not_fit(plan);
  plan.credits = message_credits(plan.inputs, plan.hint_batches);
  return plan;
}

}  // namespace colibri
