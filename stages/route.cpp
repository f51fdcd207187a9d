// route: norm, router logits, top-k and the demand of each wave.
//
// A visit (one step in one MoE layer) fills up wave by wave. Each wave's new experts are
// demanded at once, so that reads start with the first wave; when the last wave has left,
// a counting sort gives the rows of each expert of the whole step.
// Where several stages share out the experts, each is told of its own only: a fetch gets one
// demand a wave with its experts in a row, a compute the visits in which it has an expert.
#include "stages/route.hpp"

#include <algorithm>
#include <colibri/services.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "stages/dense_weights.hpp"
#include "stages/tiling.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"spent", MessageType::hint, "hint batches that come back for reuse", false, false, true},
    {"waves", MessageType::wave, "waves whose attention is done in a MoE layer", true, false, false,
     "attended"},
};
constexpr PortInfo kOutputs[] = {
    {"waves", MessageType::wave, "the same waves, to be held until their experts are computed", true, false,
     false, "routed"},
    {.name = "demand",
     .type = MessageType::demand,
     .help = "experts that a wave is the first of its step to need",
     .by_expert = true},
    {.name = "visits",
     .type = MessageType::visit,
     .help = "complete visits: the rows of every expert of the step",
     .by_expert = true},
    {"residual", MessageType::residual_copy, "copies of the residual stream, for a predictor", false},
};
constexpr MetricInfo kMetrics[] = {
    {"rows_total", "rows routed"},
    {"distinct_experts_total", "distinct experts over all visits"},
    {"residual_copies_dropped_total", "waves that gave the predictor nothing, since no batch was free"},
};
enum Output : std::uint32_t { kWaves, kDemand, kVisits, kResidual };
enum Input : std::uint8_t { kSpent, kWavesIn };

class Route final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    services_ = &context.services();
    const ModelSpec& spec = *services_->plan.spec;
    hidden_ = spec.hidden_size;
    experts_ = spec.num_experts;
    picks_ = spec.num_experts_per_token;
    scratch_stride_ = (kernels::route_row_scratch_bytes(spec.router) + 63) / 64 * 64;
    seen_.assign(services_->steps.size() * 2 * experts_, 0);
    turn_.assign(services_->steps.size(), 0);
    cursor_.assign(experts_, 0);
    next_place_.reserve(experts_);
    grouped_.reserve(experts_);
    counts_.reserve(experts_);
    free_batches_.reserve(services_->hint_batches.size());
    for (HintBatch& batch : services_->hint_batches) free_batches_.push_back(&batch);
    rows_ = context.counter("rows_total");
    distinct_ = context.counter("distinct_experts_total");
    dropped_ = context.counter("residual_copies_dropped_total");
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    if (message.port == kSpent) {
      free_batches_.push_back(message.hints());
      return Wait::none;
    }
    Wave& wave = *message.wave();
    Visit& visit = wave.step->visits[turn_[wave.step->slot]];
    wave.visit = &visit;
    if (visit.waves_routed == 0) begin_visit(visit, wave);
    route_rows(wave);
    if (services_->trace != nullptr) trace(wave, visit);
    const std::uint32_t first = visit.expert_count;
    collect_experts(visit, wave);
    ++visit.waves_routed;
    const bool last = visit.waves_routed == wave.step->wave_count;
    distinct_->add(visit.expert_count - first);
    rows_->add(wave.rows());
    send_residual(wave, out);
    out.emit(kWaves, {.type = MessageType::wave, .object = &wave});
    send_demands(visit, first, last, out);
    if (last) {
      sort_rows(visit);
      send_visit(visit, out);
    }
    return Wait::none;
  }

 private:
  std::uint8_t* seen_of(const Visit& visit) {
    const std::size_t which = visit.step->slot * 2 + (&visit - visit.step->visits);
    return seen_.data() + which * experts_;
  }

  // Norm, logits and picks of all rows of the wave; rows are independent, so any tiling gives the same.
  void route_rows(Wave& wave) {
    Step& step = *wave.step;
    const ModelSpec& spec = *services_->plan.spec;
    const DenseLayer& layer = services_->dense->layers[wave.layer];
    const kernels::KernelTable& table = *services_->kernels;
    const std::uint64_t row_cost = std::uint64_t{hidden_} * (experts_ + 8);
    const std::size_t tiles = tiles_for(wave.rows(), row_cost, context_->workers());
    std::byte* scratch = context_->memory().data();
    context_->parallel(tiles, [&](std::size_t tile) {
      const auto [begin, end] = tile_range(wave.rows(), tiles, tile);
      std::byte* row_scratch = scratch + tile * scratch_stride_;
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t row = wave.row_begin + i;
        float* normed = step.normed + row * hidden_;
        table.rms_norm(step.residual + row * hidden_, layer.ffn_norm, spec.rms_norm_eps, hidden_, normed);
        if (step.normed_quantized.values != nullptr) {
          table.quantize_rows(normed, hidden_, 1, hidden_, step.normed_quantized,
                              static_cast<std::uint32_t>(row));
        }
      }
      kernels::MatmulArgs logits;
      logits.weights = layer.router;
      logits.x = step.normed + (wave.row_begin + begin) * hidden_;
      logits.x_stride = hidden_;
      logits.rows = static_cast<std::uint32_t>(end - begin);
      logits.y = step.router_logits + (wave.row_begin + begin) * experts_;
      logits.y_stride = experts_;
      logits.panel_end = layer.router.panels();
      table.matmul[static_cast<int>(layer.router.format)](logits);
      for (std::size_t i = begin; i < end; ++i) pick(wave, wave.row_begin + i, layer, row_scratch);
    });
  }

  void pick(Wave& wave, std::size_t row, const DenseLayer& layer, std::byte* scratch) const {
    Step& step = *wave.step;
    std::uint32_t* picks = step.picks + row * picks_;
    float* weights = step.pick_weights + row * picks_;
    if (kernels::route_row(*services_->kernels, services_->plan.spec->router,
                           step.router_logits + row * experts_, layer.router_selection_bias, scratch, picks,
                           weights)) {
      return;
    }
    // The row still goes through the layers, with the first experts at weight 0; its result is an error.
    for (std::uint32_t k = 0; k < picks_; ++k) {
      picks[k] = k;
      weights[k] = 0.0F;
    }
    if (step.row_status[row].is_ok()) {
      step.row_status[row] = Status(
          ErrorCode::corrupt, "the router gave a value that is not finite, in layer " +
                                  std::to_string(wave.layer) + "; check the model with `colibri verify`");
    }
  }

  void begin_visit(Visit& visit, const Wave& wave) {
    visit.step = wave.step;
    visit.layer = wave.layer;
    visit.serial = next_serial_++;
    visit.expert_count = 0;
    std::memset(seen_of(visit), 0, experts_);
    std::fill_n(visit.expert_status, experts_, Status());
  }

  // Adds the wave's experts that no earlier wave of the step picked, and counts what the wave waits for.
  void collect_experts(Visit& visit, const Wave& wave) {
    const Step& step = *wave.step;
    std::uint8_t* seen = seen_of(visit);
    std::uint32_t pending = 0;
    for (std::size_t pick = std::size_t{wave.row_begin} * picks_; pick < std::size_t{wave.row_end} * picks_;
         ++pick) {
      const std::uint32_t expert = step.picks[pick];
      // cursor_ marks experts already counted for this wave.
      if (cursor_[expert] == wave_mark_) continue;
      cursor_[expert] = wave_mark_;
      ++pending;
      if (seen[expert] != 0) continue;
      seen[expert] = 1;
      visit.experts[visit.expert_count++] = expert;
    }
    ++wave_mark_;
    visit.wave_pending[wave.index] = pending + (step.shared_out != nullptr ? 1 : 0);
  }

  // Sends each fetch its part of experts[first, expert_count). Of the first and the last wave of a visit all
  // of them hear, also those that have none of its experts: hints are kept and dropped by that. These do not
  // read the visit, and the ring of such a fetch may fill up meanwhile: the executor then lets this stage
  // wait.
  void send_demands(Visit& visit, std::uint32_t first, bool last, Emitter& out) {
    const std::uint32_t fetches = out.owners(kDemand);
    count_owned(visit, first, kDemand, out);
    if (fetches > 1) group_by_owner(visit, first, out);
    const bool begins = visit.waves_routed == 1;
    for (std::uint32_t fetch = 0; fetch < fetches; ++fetch) {
      const std::uint32_t count = counts_[fetch];
      if (count == 0 && !begins && !last) continue;
      out.emit_to(kDemand, fetch,
                  {.type = MessageType::demand,
                   .last = last,
                   .first = first,
                   .count = count,
                   .layer = visit.layer,
                   .step_slot = visit.step->slot,
                   .step_serial = visit.step->serial,
                   .object = &visit});
      first += count;
    }
  }

  // Sends the visit to the computes that have something to do in it. It may be over when the last one knows.
  void send_visit(Visit& visit, Emitter& out) {
    const std::uint32_t computes = out.owners(kVisits);
    count_owned(visit, 0, kVisits, out);
    // The shared expert belongs to the owner of expert 0.
    const bool shared = visit.step->shared_out != nullptr;
    const std::uint32_t shared_owner = out.owner(kVisits, 0);
    for (std::uint32_t compute = 0; compute < computes; ++compute) {
      if (counts_[compute] == 0 && !(shared && compute == shared_owner)) continue;
      out.emit_to(kVisits, compute,
                  {.type = MessageType::visit, .count = counts_[compute], .object = &visit});
    }
  }

  // counts_[owner] = how many of experts[first, expert_count) it has.
  void count_owned(const Visit& visit, std::uint32_t first, std::uint32_t port, const Emitter& out) {
    counts_.assign(out.owners(port), 0);
    if (counts_.size() == 1) {
      counts_[0] = visit.expert_count - first;
      return;
    }
    for (std::uint32_t i = first; i < visit.expert_count && !counts_.empty(); ++i) {
      ++counts_[out.owner(port, visit.experts[i])];
    }
  }

  // Reorders experts[first, expert_count): by fetch, then as they were. counts_ holds their numbers.
  void group_by_owner(Visit& visit, std::uint32_t first, const Emitter& out) {
    grouped_.assign(visit.experts + first, visit.experts + visit.expert_count);
    next_place_.assign(counts_.size(), first);
    for (std::size_t owner = 1; owner < counts_.size(); ++owner) {
      next_place_[owner] = next_place_[owner - 1] + counts_[owner - 1];
    }
    for (const std::uint32_t expert : grouped_) {
      visit.experts[next_place_[out.owner(kDemand, expert)]++] = expert;
    }
  }

  // Counting sort of all picks of the step by (expert, row).
  void sort_rows(Visit& visit) {
    const Step& step = *visit.step;
    const std::size_t total = std::size_t{step.rows} * picks_;
    std::memset(visit.row_offsets, 0, (experts_ + 1) * sizeof(std::uint32_t));
    for (std::size_t pick = 0; pick < total; ++pick) ++visit.row_offsets[step.picks[pick] + 1];
    for (std::uint32_t e = 0; e < experts_; ++e) visit.row_offsets[e + 1] += visit.row_offsets[e];
    next_place_.assign(visit.row_offsets, visit.row_offsets + experts_);
    for (std::size_t pick = 0; pick < total; ++pick) {
      const std::uint32_t place = next_place_[step.picks[pick]]++;
      visit.row_list[place] = static_cast<std::uint32_t>(pick / picks_);
      visit.places[pick] = place;
    }
    visit.waves_routed = 0;  // ready for the visit that reuses this object
    // That is the one after the next, whatever their layers: then every other stage is done with this one.
    turn_[step.slot] ^= 1U;
  }

  // The last MoE layer has no next one: its picks alone go, to be compared with what was guessed.
  void send_residual(const Wave& wave, Emitter& out) {
    const ModelSpec& spec = *services_->plan.spec;
    if (out.room(kResidual) == 0) return;
    if (free_batches_.empty()) {
      dropped_->add(1);
      return;
    }
    HintBatch* batch = free_batches_.back();
    free_batches_.pop_back();
    const Step& step = *wave.step;
    batch->step_serial = step.serial;
    batch->step_slot = step.slot;
    batch->wave = wave.index;
    batch->layer = wave.layer;
    batch->rows = wave.rows();
    batch->step_rows = step.rows;
    batch->followed = step.followed;
    std::memcpy(batch->picks, step.picks + std::size_t{wave.row_begin} * picks_,
                std::size_t{wave.rows()} * picks_ * sizeof(std::uint32_t));
    if (spec.next_moe_layer(wave.layer + 1) < spec.num_layers()) {
      std::memcpy(batch->residual, step.residual + std::size_t{wave.row_begin} * hidden_,
                  std::size_t{wave.rows()} * hidden_ * sizeof(float));
    }
    out.emit(kResidual, {.type = MessageType::residual_copy, .object = batch});
  }

  void trace(const Wave& wave, const Visit& visit) const {
    const Step& step = *wave.step;
    TraceRecorder& recorder = *services_->trace;
    for (std::uint32_t row = wave.row_begin; row < wave.row_end; ++row) {
      const Sequence& sequence = *step.sequences[row];
      if (recorder.wants_values()) {
        recorder.values("router_logits", wave.layer, sequence, step.positions[row],
                        {step.router_logits + std::size_t{row} * experts_, experts_});
      }
      if (recorder.wants_routing()) {
        recorder.routing(step.serial, visit.serial, sequence, step.positions[row], wave.layer,
                         {step.picks + std::size_t{row} * picks_, picks_},
                         {step.pick_weights + std::size_t{row} * picks_, picks_});
      }
    }
  }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  std::uint32_t hidden_ = 0, experts_ = 0, picks_ = 0;
  std::size_t scratch_stride_ = 0;
  std::uint64_t next_serial_ = 1;
  std::uint64_t wave_mark_ = 1;
  std::vector<std::uint8_t> turn_;         // [steps] which of a step's visits comes next, or is being routed
  std::vector<std::uint8_t> seen_;         // [steps, 2, experts] already demanded in the visit
  std::vector<std::uint64_t> cursor_;      // [experts] last wave mark that picked the expert
  std::vector<std::uint32_t> next_place_;  // [experts] counting sorts
  std::vector<std::uint32_t> grouped_;     // [experts] new ones of a wave, before they are grouped
  std::vector<std::uint32_t> counts_;      // [owners] see count_owned
  std::vector<HintBatch*> free_batches_;
  Counter *rows_ = nullptr, *distinct_ = nullptr, *dropped_ = nullptr;
};

}  // namespace

const StageInfo kRouteInfo = {
    .kind = "route",
    .help = "runs the exact router: picks, weights, rows per expert; demands what must be read",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = {},
    .metrics = kMetrics,
    .max_emits = 1,
    .memory = {.dense = true, .steps = true},
};

std::unique_ptr<Stage> create_route() { return std::make_unique<Route>(); }

std::uint64_t route_memory_bytes(const PlanInputs& inputs) {
  const std::uint64_t stride = (kernels::route_row_scratch_bytes(inputs.spec->router) + 63) / 64 * 64;
  return stride * (std::uint64_t{4} * inputs.threads + 1);  // one a tile, see tiles_for
}

}  // namespace colibri
