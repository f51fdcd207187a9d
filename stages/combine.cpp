// combine: per row, its k results in ascending expert id times weights, plus the shared
// expert, plus the residual.
//
// Waves wait here until the results of all their picks are in. They leave in the order of
// their index within the step, so that rows of one sequence stay in position order. A visit is
// read until its last wave has left, which is what ends it: a wave waits for all results of its
// rows, so none comes later, from however many computes.
#include "stages/combine.hpp"

#include <cassert>
#include <colibri/services.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "stages/tiling.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"done", MessageType::expert_done, "experts whose rows are computed", true, true, true},
    {"waves", MessageType::wave, "waves that wait for their experts", true, false, false, "routed"},
};
constexpr PortInfo kOutputs[] = {
    {"next_layer", MessageType::wave, "waves whose MoE layer is done", true, false, false, "combined"},
};
constexpr MetricInfo kMetrics[] = {
    {"rows_total", "rows combined"},
    {"failed_rows_total",
     "rows combined whose request fails: a record could not be read, or a router value was not finite"},
};

class Combine final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    services_ = &context.services();
    const ModelSpec& spec = *services_->plan.spec;
    hidden_ = spec.hidden_size;
    picks_ = spec.num_experts_per_token;
    visits_.assign(services_->steps.size() * 2, {});
    for (Held& held : visits_) held.waves.assign(services_->plan.waves_per_step(), nullptr);
    rows_ = context.counter("rows_total");
    failed_rows_ = context.counter("failed_rows_total");
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    if (message.type == MessageType::wave) {
      Wave& wave = *message.wave();
      Visit& visit = *wave.visit;
      held_of(visit).waves[wave.index] = &wave;
      release_complete(visit, out);
      return Wait::none;
    }
    Visit& visit = *message.visit();
    std::uint32_t expert = message.first;
    for (std::uint32_t i = 0; i < message.count; ++i) {
      if (i > 0) expert = visit.next_done[expert];
      count_result(visit, expert);
    }
    release_complete(visit, out);
    return Wait::none;
  }

 private:
  // Waves of one visit that have arrived and not left, by index.
  struct Held {
    std::vector<Wave*> waves;
    std::uint32_t next = 0;  // index of the next wave to leave
  };

  Held& held_of(const Visit& visit) {
    return visits_[visit.step->slot * 2 + static_cast<std::size_t>(&visit - visit.step->visits)];
  }

  // One expert less to wait for, for each wave with a row of it; the shared expert counts for all.
  void count_result(Visit& visit, std::uint32_t expert) {
    if (expert == services_->plan.spec->num_experts) {
      for (std::uint32_t wave = 0; wave < visit.step->wave_count; ++wave) --visit.wave_pending[wave];
      return;
    }
    const Step& step = *visit.step;
    std::uint32_t wave = 0;
    std::uint32_t counted_to = 0;  // rows below belong to waves already counted
    for (std::uint32_t place = visit.row_offsets[expert]; place < visit.row_offsets[expert + 1]; ++place) {
      const std::uint32_t row = visit.row_list[place];
      if (row < counted_to) continue;
      while (row >= step.waves[wave].row_end) ++wave;
      --visit.wave_pending[wave];
      counted_to = step.waves[wave].row_end;
    }
  }

  void release_complete(Visit& visit, Emitter& out) {
    Held& held = held_of(visit);
    const std::uint32_t waves = visit.step->wave_count;
    while (held.next < waves && held.waves[held.next] != nullptr && visit.wave_pending[held.next] == 0) {
      Wave& wave = *held.waves[held.next];
      held.waves[held.next++] = nullptr;
      combine_rows(visit, wave);
      const bool last = held.next == waves;
      if (last) held.next = 0;
      out.emit(0, {.type = MessageType::wave, .object = &wave});
      if (last) return;  // the visit object may be in use for another layer from here on
    }
  }

  void combine_rows(const Visit& visit, const Wave& wave) {
    Step& step = *wave.step;
    const kernels::KernelTable& table = *services_->kernels;
    const std::size_t tiles =
        tiles_for(wave.rows(), std::uint64_t{hidden_} * (picks_ + 2) * 4, context_->workers());
    context_->parallel(tiles, [&](std::size_t tile) {
      const auto [begin, end] = tile_range(wave.rows(), tiles, tile);
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t row = wave.row_begin + i;
        // The normed row is no longer needed by anyone: it takes the sum.
        float* sum = step.normed + row * hidden_;
        std::memset(sum, 0, hidden_ * sizeof(float));
        for (std::size_t k = row * picks_; k < (row + 1) * picks_; ++k) {
          const Status& status = visit.expert_status[step.picks[k]];
          if (!status.is_ok() && step.row_status[row].is_ok()) step.row_status[row] = status;
          if (!status.is_ok()) continue;
          table.scale_add(step.pick_weights[k], step.expert_out + std::size_t{visit.places[k]} * hidden_,
                          hidden_, sum);
        }
        if (step.shared_out != nullptr) table.add(step.shared_out + row * hidden_, hidden_, sum);
        table.add(sum, hidden_, step.residual + row * hidden_);
      }
    });
    rows_->add(wave.rows());
    std::uint64_t failed = 0;
    for (std::uint32_t row = wave.row_begin; row < wave.row_end; ++row)
      failed += step.row_status[row].is_ok() ? 0 : 1;
    failed_rows_->add(failed);
    if (services_->trace != nullptr && services_->trace->wants_values()) trace(wave);
  }

  void trace(const Wave& wave) const {
    const Step& step = *wave.step;
    for (std::size_t row = wave.row_begin; row < wave.row_end; ++row) {
      services_->trace->values("moe_output", wave.layer, *step.sequences[row], step.positions[row],
                               {step.normed + row * hidden_, hidden_});
      services_->trace->values("hidden_states", wave.layer + 1, *step.sequences[row], step.positions[row],
                               {step.residual + row * hidden_, hidden_});
    }
  }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  std::uint32_t hidden_ = 0, picks_ = 0;
  std::vector<Held> visits_;  // [steps, 2]
  Counter *rows_ = nullptr, *failed_rows_ = nullptr;
};

}  // namespace

const StageInfo kCombineInfo = {
    .kind = "combine",
    .help = "adds up each row's experts in ascending order, the shared expert and the residual",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = {},
    .metrics = kMetrics,
    .max_emits = 0,
    .memory = {.steps = true},
};

std::unique_ptr<Stage> create_combine() { return std::make_unique<Combine>(); }

}  // namespace colibri
