// predict: runs the next MoE layer's router on this layer's residual.
//
// The residual stream changes little from layer to layer, so the next router, with the
// next layer's own norm, already names most of what the wave will pick there. The result is
// only a hint: it decides what is read early, never what is computed.
#include "stages/predict.hpp"

#include <algorithm>
#include <colibri/services.hpp>
#include <cstring>
#include <numeric>
#include <vector>

#include "stages/dense_weights.hpp"
#include "stages/tiling.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"residual", MessageType::residual_copy, "copies of a wave's residual stream in a MoE layer"},
};
constexpr PortInfo kOutputs[] = {
    {"hints", MessageType::hint, "experts of the next MoE layer, likeliest first"},
};
constexpr ParamInfo kParams[] = {
    {.name = "method",
     .type = ParamType::choice,
     .unit = "",
     .default_value = "next_router",
     .choices = "none|next_router",
     .help = "next_router: the next layer's norm and router on this layer's residual; none: no hints"},
};
constexpr MetricInfo kMetrics[] = {
    {"rows_total", "rows whose next picks were guessed"},
    {"guesses_total", "distinct experts named, summed over waves"},
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
    active_ = context.text("method") == "next_router";
    rows_ = context.counter("rows_total");
    guesses_ = context.counter("guesses_total");
    lay_out(context.memory().data());
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    HintBatch& batch = *message.hints();
    batch.expert_count = 0;
    if (active_) guess(batch);
    out.emit(0, {.type = MessageType::hint, .object = &batch});
    return Wait::none;
  }

 private:
  void lay_out(std::byte* memory) {
    const std::size_t rows = services_->plan.wave_rows;
    auto take = [&memory](std::size_t bytes) {
      std::byte* part = memory;
      memory += (bytes + 63) / 64 * 64;
      return part;
    };
    normed_ = reinterpret_cast<float*>(take(rows * hidden_ * sizeof(float)));
    logits_ = reinterpret_cast<float*>(take(rows * experts_ * sizeof(float)));
    row_picks_ = reinterpret_cast<std::uint32_t*>(take(rows * picks_ * sizeof(std::uint32_t)));
    row_weights_ = reinterpret_cast<float*>(take(rows * picks_ * sizeof(float)));
    miss_ = reinterpret_cast<float*>(take(experts_ * sizeof(float)));
    scratch_stride_ = (kernels::route_row_scratch_bytes(services_->plan.spec->router) + 63) / 64 * 64;
    scratch_ = memory;
  }

  void guess(HintBatch& batch) {
    const ModelSpec& spec = *services_->plan.spec;
    batch.target_layer = spec.next_moe_layer(batch.layer + 1);
    const DenseLayer& layer = services_->dense->layers[batch.target_layer];
    const kernels::KernelTable& table = *services_->kernels;
    const std::size_t tiles =
        tiles_for(batch.rows, std::uint64_t{hidden_} * (experts_ + 8), context_->workers());
    context_->parallel(tiles, [&](std::size_t tile) {
      const auto [begin, end] = tile_range(batch.rows, tiles, tile);
      for (std::size_t row = begin; row < end; ++row) {
        table.rms_norm(batch.residual + row * hidden_, layer.ffn_norm, spec.rms_norm_eps, hidden_,
                       normed_ + row * hidden_);
      }
      kernels::MatmulArgs args;
      args.weights = layer.router;
      args.x = normed_ + begin * hidden_;
      args.x_stride = hidden_;
      args.rows = static_cast<std::uint32_t>(end - begin);
      args.y = logits_ + begin * experts_;
      args.y_stride = experts_;
      args.panel_end = layer.router.panels();
      table.matmul[static_cast<int>(layer.router.format)](args);
      for (std::size_t row = begin; row < end; ++row) {
        std::uint32_t* picks = row_picks_ + row * picks_;
        if (!kernels::route_row(table, spec.router, logits_ + row * experts_, layer.router_selection_bias,
                                scratch_ + tile * scratch_stride_, picks, row_weights_ + row * picks_)) {
          std::fill_n(picks, picks_, experts_);  // not finite: no guess for this row
        }
      }
    });
    collect(batch);
    rows_->add(batch.rows);
    guesses_->add(batch.expert_count);
  }

  // The chance that at least one row picks an expert: each row that names it is right with kRecall.
  void collect(HintBatch& batch) {
    constexpr float kRecall = 0.75F;  // mean at depth 1 on trained routers
    std::fill_n(miss_, experts_, 1.0F);
    for (std::size_t i = 0; i < std::size_t{batch.rows} * picks_; ++i) {
      if (row_picks_[i] < experts_) miss_[row_picks_[i]] *= 1.0F - kRecall;
    }
    for (std::uint32_t expert = 0; expert < experts_; ++expert) {
      if (miss_[expert] < 1.0F) batch.experts[batch.expert_count++] = expert;
    }
    std::sort(batch.experts, batch.experts + batch.expert_count, [this](std::uint32_t a, std::uint32_t b) {
      return miss_[a] != miss_[b] ? miss_[a] < miss_[b] : a < b;
    });
    for (std::uint32_t i = 0; i < batch.expert_count; ++i)
      batch.probabilities[i] = 1.0F - miss_[batch.experts[i]];
  }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  std::uint32_t hidden_ = 0, experts_ = 0, picks_ = 0;
  bool active_ = true;
  float* normed_ = nullptr;             // [wave_rows, hidden]
  float* logits_ = nullptr;             // [wave_rows, experts]
  std::uint32_t* row_picks_ = nullptr;  // [wave_rows, k]
  float* row_weights_ = nullptr;        // [wave_rows, k]
  float* miss_ = nullptr;               // [experts] chance that no row picks it
  std::byte* scratch_ = nullptr;        // one a tile
  std::size_t scratch_stride_ = 0;
  Counter *rows_ = nullptr, *guesses_ = nullptr;
};

}  // namespace

const StageInfo kPredictInfo = {
    .kind = "predict",
    .help = "guesses the experts of the next MoE layer, so that reads start before they are demanded",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = kParams,
    .metrics = kMetrics,
    .max_emits = 1,
};

std::unique_ptr<Stage> create_predict() { return std::make_unique<Predict>(); }

std::uint64_t predict_memory_bytes(const PlanInputs& inputs) {
  const ModelSpec& spec = *inputs.spec;
  const std::uint64_t rows = inputs.wave_rows;
  const std::uint64_t scratch = (kernels::route_row_scratch_bytes(spec.router) + 63) / 64 * 64;
  auto padded = [](std::uint64_t bytes) { return (bytes + 63) / 64 * 64; };
  return padded(rows * spec.hidden_size * 4) + padded(rows * spec.num_experts * 4) +
         2 * padded(rows * spec.num_experts_per_token * 4) + padded(std::uint64_t{4} * spec.num_experts) +
         scratch * (std::uint64_t{4} * inputs.threads + 1);
}

}  // namespace colibri
