// predict: guesses what a wave will pick in the next MoE layers.
//
// The residual stream changes little from layer to layer, so the router of a later layer,
// with that layer's own norm, already names most of what the wave will pick there. Where
// steps touch most experts anyway, all that they are likely to touch are named (a sweep): the
// guesses of all waves so far, and how often rows pick an expert. What waves really pick comes
// back with their next residual, and calibrates the probabilities. The result is only
// a hint: it decides what is read early, never what is computed.
#include "stages/predict.hpp"

#include <algorithm>
#include <colibri/services.hpp>
#include <numeric>
#include <vector>

#include "stages/dense_weights.hpp"
#include "stages/guess_book.hpp"
#include "stages/memory_cursor.hpp"
#include "stages/sweep_forecast.hpp"
#include "stages/tiling.hpp"
#include "stages/visit_census.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"residual", MessageType::residual_copy, "copies of a wave's residual stream in a MoE layer"},
};
constexpr PortInfo kOutputs[] = {
    {"hints", MessageType::hint, "experts of the next MoE layers, nearest layer and likeliest first"},
};
constexpr ParamInfo kParams[] = {
    {.name = "method",
     .type = ParamType::choice,
     .unit = "",
     .default_value = "auto",
     .choices = "auto|none|next_router|sweep",
     .while_running = true,
     .help = "next_router: later layers' norms and routers on this layer's residual; sweep: all experts that "
             "the step is likely to touch; auto: next_router, and sweep where steps touch most experts; "
             "none: no hints"},
    {.name = "depth",
     .type = ParamType::integer,
     .unit = "layers",
     .default_value = "1",
     .minimum = 1,
     .maximum = kMaximumHintDepth,
     .help = "MoE layers that guesses look ahead; a sweep looks ahead two at least"},
};
constexpr MetricInfo kMetrics[] = {
    {"rows_total", "rows whose next picks were guessed"},
    {"guesses_total", "distinct experts named, summed over waves and layers"},
    {"sweeps_total", "times that all experts were named that a step is likely to touch in a layer"},
    {"picks_named_depth1_total", "picks guessed one MoE layer ahead, and seen to come or not"},
    {"picks_right_depth1_total", "those that came"},
    {"picks_named_depth2_total", "picks guessed two MoE layers ahead, and seen to come or not"},
    {"picks_right_depth2_total", "those that came"},
    {"picks_named_depth3_total", "picks guessed three MoE layers ahead, and seen to come or not"},
    {"picks_right_depth3_total", "those that came"},
};

// From this share on, naming all experts wastes less than guessing would miss.
constexpr float kSweepTouched = 0.7F;
// In a sweep, experts that are less likely than this are left out.
constexpr float kSweepProbability = 0.5F;
// Rows of a step that are guessed for a layer that is swept: more tell little new.
constexpr std::uint32_t kSweepRows = 512;

enum class Method : std::uint8_t { automatic, none, next_router, sweep };

Method read_method(std::string_view text) {
  if (text == "none") return Method::none;
  if (text == "next_router") return Method::next_router;
  return text == "sweep" ? Method::sweep : Method::automatic;
}

// The arrays of one guess, measured and laid out by the same code.
struct Scratch {
  void lay_out(MemoryCursor& memory, const PlanInputs& plan) {
    const ModelSpec& spec = *plan.spec;
    const std::uint64_t rows = plan.wave_rows;
    normed = memory.take<float>(rows * spec.hidden_size);
    logits = memory.take<float>(rows * spec.num_experts);
    row_picks = memory.take<std::uint32_t>(rows * spec.num_experts_per_token);
    row_weights = memory.take<float>(rows * spec.num_experts_per_token);
    miss = memory.take<float>(spec.num_experts);
    tile_stride = (kernels::route_row_scratch_bytes(spec.router) + 63) / 64 * 64;
    tiles = memory.take<std::byte>(tile_stride * (std::uint64_t{4} * plan.threads + 1));
  }

  float* normed = nullptr;             // [wave_rows, hidden]
  float* logits = nullptr;             // [wave_rows, experts]
  std::uint32_t* row_picks = nullptr;  // [wave_rows, k] ascending id
  float* row_weights = nullptr;        // [wave_rows, k]
  float* miss = nullptr;               // [experts] chance that no row picks it
  std::byte* tiles = nullptr;          // route_row's scratch, one a tile
  std::size_t tile_stride = 0;
};

class Predict final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    services_ = &context.services();
    const ModelSpec& spec = *services_->plan.spec;
    hidden_ = spec.hidden_size;
    experts_ = spec.num_experts;
    picks_ = spec.num_experts_per_token;
    one_step_ = services_->plan.in_flight == 1;
    depth_ = static_cast<std::uint32_t>(context.integer("depth"));
    MemoryCursor memory(context.memory());
    scratch_.lay_out(memory, services_->plan);
    book_.lay_out(memory, services_->plan, depth_);
    book_.reset(services_->plan, depth_);
    census_.reset(services_->plan);
    forecast_.reset(services_->plan);
    swept_.assign(spec.num_moe_layers(), 0);
    order_.resize(picks_);
    rows_ = context.counter("rows_total");
    guesses_ = context.counter("guesses_total");
    sweeps_ = context.counter("sweeps_total");
    constexpr std::string_view kNames[kMaximumHintDepth][2] = {
        {"picks_named_depth1_total", "picks_right_depth1_total"},
        {"picks_named_depth2_total", "picks_right_depth2_total"},
        {"picks_named_depth3_total", "picks_right_depth3_total"}};
    for (std::uint32_t i = 0; i < kMaximumHintDepth; ++i) {
      named_[i] = context.counter(kNames[i][0]);
      right_[i] = context.counter(kNames[i][1]);
    }
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    HintBatch& batch = *message.hints();
    batch.target_count = 0;
    method_ = read_method(context_->text("method"));
    if (method_ != Method::none) guess(batch);
    out.emit(0, {.type = MessageType::hint, .object = &batch});
    return Wait::none;
  }

 private:
  void guess(HintBatch& batch) {
    const ModelSpec& spec = *services_->plan.spec;
    const std::uint32_t ordinal = spec.moe_ordinal(batch.layer);
    census_.count(batch, ordinal);
    book_.settle(batch, ordinal);
    for (std::uint32_t i = 0; i < depth_; ++i) {
      named_[i]->set(book_.tally(i + 1).named);
      right_[i]->set(book_.tally(i + 1).right);
    }
    std::uint32_t layer = batch.layer;
    std::uint32_t steps_ahead = 0;
    for (std::uint32_t distance = 1; distance <= std::max(depth_, kSweepDepth); ++distance) {
      layer = spec.next_moe_layer(layer + 1);
      if (layer == spec.num_layers()) {
        if (!batch.followed || !one_step_ || steps_ahead > 0) return;
        steps_ahead = 1;
        layer = spec.next_moe_layer(0);
      }
      HintTarget& target = batch.targets[batch.target_count];
      target.layer = layer;
      target.steps_ahead = steps_ahead;
      target.expert_count = 0;
      target.sweep = sweeps(spec.moe_ordinal(layer));
      // Of the rows of the next step nothing is known.
      if (steps_ahead > 0 || target.sweep) {
        if (!sweep(batch, ordinal, distance, target)) continue;
      } else if (distance <= depth_) {
        route(batch, target);
        guess_picks(batch, ordinal, distance);
        name_picks(target);
      } else {
        continue;
      }
      guesses_->add(target.expert_count);
      ++batch.target_count;
    }
    rows_->add(batch.rows);
  }

  bool sweeps(std::uint32_t ordinal) const {
    return method_ == Method::sweep ||
           (method_ == Method::automatic && census_.touched(ordinal) >= kSweepTouched);
  }

  // Names the experts that the step is likely to touch: for the next layer whenever a wave tells more, for
  // those after it once a step. False when there is nothing to add.
  bool sweep(const HintBatch& batch, std::uint32_t from, std::uint32_t distance, HintTarget& target) {
    const std::uint64_t step_serial = batch.step_serial + target.steps_ahead;
    const std::uint32_t ordinal = services_->plan.spec->moe_ordinal(target.layer);
    const bool known = census_.touched(ordinal) > 0;
    if (!known && method_ != Method::sweep) return false;
    const bool guesses = known && distance == 1 && target.steps_ahead == 0 &&
                         forecast_.rows(batch.step_slot, step_serial, ordinal) < kSweepRows;
    if (guesses) {
      route(batch, target);
      guess_picks(batch, from, distance);
      forecast_.add(batch.step_slot, step_serial, ordinal, batch.rows, mean_precision(ordinal),
                    {scratch_.miss, experts_});
    } else if (swept_[ordinal] > step_serial) {
      return false;
    }
    swept_[ordinal] = step_serial + 1;
    for (std::uint32_t expert = 0; expert < experts_; ++expert) {
      const float probability = known ? forecast_.probability(batch.step_slot, step_serial, ordinal, expert,
                                                              census_.rate(ordinal, expert), batch.step_rows)
                                      : 1.0F;
      if (probability < kSweepProbability) continue;
      target.probabilities[target.expert_count] = probability;
      target.experts[target.expert_count++] = expert;
    }
    sweeps_->add(1);
    return true;
  }

  // Of guesses about this layer from the one before it.
  float mean_precision(std::uint32_t ordinal) const {
    float sum = 0;
    for (std::uint32_t rank = 0; rank < picks_; ++rank) sum += book_.precision(ordinal, 1, rank);
    return sum / static_cast<float>(picks_);
  }

  // The target layer's norm, router and picks for each row, as `route` will do them on that layer's residual.
  void route(const HintBatch& batch, const HintTarget& target) {
    const ModelSpec& spec = *services_->plan.spec;
    const DenseLayer& layer = services_->dense->layers[target.layer];
    const kernels::KernelTable& table = *services_->kernels;
    const std::size_t tiles =
        tiles_for(batch.rows, std::uint64_t{hidden_} * (experts_ + 8), context_->workers());
    context_->parallel(tiles, [&](std::size_t tile) {
      const auto [begin, end] = tile_range(batch.rows, tiles, tile);
      for (std::size_t row = begin; row < end; ++row) {
        table.rms_norm(batch.residual + row * hidden_, layer.ffn_norm, spec.rms_norm_eps, hidden_,
                       scratch_.normed + row * hidden_);
      }
      kernels::MatmulArgs args;
      args.weights = layer.router;
      args.x = scratch_.normed + begin * hidden_;
      args.x_stride = hidden_;
      args.rows = static_cast<std::uint32_t>(end - begin);
      args.y = scratch_.logits + begin * experts_;
      args.y_stride = experts_;
      args.panel_end = layer.router.panels();
      table.matmul[static_cast<int>(layer.router.format)](args);
      for (std::size_t row = begin; row < end; ++row) {
        std::uint32_t* picks = scratch_.row_picks + row * picks_;
        if (!kernels::route_row(table, spec.router, scratch_.logits + row * experts_,
                                layer.router_selection_bias, scratch_.tiles + tile * scratch_.tile_stride,
                                picks, scratch_.row_weights + row * picks_)) {
          std::fill_n(picks, picks_, experts_);  // not finite: no guess for this row
        }
      }
    });
  }

  // The chance that no row picks an expert, taking the rows' guesses as independent; keeps the guesses.
  void guess_picks(const HintBatch& batch, std::uint32_t ordinal, std::uint32_t distance) {
    std::uint32_t* noted = book_.note(batch, ordinal, distance);
    float* miss = scratch_.miss;
    std::fill_n(miss, experts_, 1.0F);
    for (std::size_t row = 0; row < batch.rows; ++row) {
      std::uint32_t* ranked = noted + row * picks_;
      rank(scratch_.row_picks + row * picks_, scratch_.row_weights + row * picks_, ranked);
      for (std::uint32_t rank = 0; rank < picks_; ++rank) {
        if (ranked[rank] == experts_) continue;
        miss[ranked[rank]] *= 1.0F - book_.precision(ordinal + distance, distance, rank);
      }
    }
  }

  // Names what at least one row is guessed to pick.
  void name_picks(HintTarget& target) {
    const float* miss = scratch_.miss;
    for (std::uint32_t expert = 0; expert < experts_; ++expert) {
      if (miss[expert] < 1.0F) target.experts[target.expert_count++] = expert;
    }
    std::sort(target.experts, target.experts + target.expert_count, [miss](std::uint32_t a, std::uint32_t b) {
      return miss[a] != miss[b] ? miss[a] < miss[b] : a < b;
    });
    for (std::uint32_t i = 0; i < target.expert_count; ++i)
      target.probabilities[i] = 1.0F - miss[target.experts[i]];
  }

  // A row's picks by weight, heaviest first.
  void rank(const std::uint32_t* picks, const float* weights, std::uint32_t* ranked) {
    std::iota(order_.begin(), order_.end(), 0U);
    std::sort(order_.begin(), order_.end(), [weights](std::uint32_t a, std::uint32_t b) {
      return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
    });
    for (std::uint32_t i = 0; i < picks_; ++i) ranked[i] = picks[order_[i]];
  }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  std::uint32_t hidden_ = 0, experts_ = 0, picks_ = 0, depth_ = 1;
  Method method_ = Method::automatic;  // of this message
  bool one_step_ = true;               // at a time: the next one has the next serial
  Scratch scratch_;
  GuessBook book_;
  VisitCensus census_;
  SweepForecast forecast_;
  std::vector<std::uint64_t> swept_;  // [MoE layers] 1 + the last step of which they were swept
  std::vector<std::uint32_t> order_;  // [k]
  Counter *rows_ = nullptr, *guesses_ = nullptr, *sweeps_ = nullptr;
  Counter* named_[kMaximumHintDepth] = {};
  Counter* right_[kMaximumHintDepth] = {};
};

}  // namespace

const StageInfo kPredictInfo = {
    .kind = "predict",
    .help = "guesses the experts of the next MoE layers, so that reads start before they are demanded",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = kParams,
    .metrics = kMetrics,
    .max_emits = 1,
    .memory = {.dense = true},
};

std::unique_ptr<Stage> create_predict() { return std::make_unique<Predict>(); }

std::uint64_t predict_memory_bytes(const PlanInputs& inputs) {
  MemoryCursor measure;
  Scratch scratch;
  scratch.lay_out(measure, inputs);
  GuessBook book;
  book.lay_out(measure, inputs, inputs.hint_depth);  // no less than `depth`
  return measure.used();
}

}  // namespace colibri
