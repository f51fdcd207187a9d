// attend: takes a wave through attention, layer by layer, until a layer has experts.
//
// A new wave starts at layer 0, a looping one after the MoE layer that was just combined.
// Looping waves are served first: they are closest to being finished.
#include "stages/attend.hpp"

#include <colibri/services.hpp>
#include <optional>

#include "stages/transformer_block.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"looping", MessageType::wave, "waves whose MoE layer is combined", true, false, true, "combined"},
    {"fresh", MessageType::wave, "embedded waves of a new step", true, false, false, "embedded"},
};
constexpr PortInfo kOutputs[] = {
    {"routed", MessageType::wave, "waves after attention of a MoE layer, to be routed", true, false, false,
     "attended"},
    {"finished", MessageType::wave, "waves after the last layer", true, false, false, "finished"},
};
constexpr ParamInfo kParams[] = {
    {.name = "kv_type",
     .type = ParamType::choice,
     .unit = "",
     .default_value = "f32",
     .choices = "f32|bf16",
     .help = "precision of keys and values: bf16 halves the KV pages and rounds what attention sees"},
};
constexpr MetricInfo kMetrics[] = {
    {"rows_total", "rows times layers that went through attention"},
    {"keys_total", "keys that those rows attended to"},
};
enum Input : std::uint8_t { kLooping, kFresh };
enum Output : std::uint32_t { kRouted, kFinished };

class Attend final : public Stage {
 public:
  Status start(StageContext& context) override {
    services_ = &context.services();
    block_.emplace(context);
    rows_ = context.counter("rows_total");
    keys_ = context.counter("keys_total");
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    Wave& wave = *message.wave();
    const ModelSpec& spec = *services_->plan.spec;
    std::uint32_t layer = wave.layer + 1;
    if (message.port == kFresh) {
      layer = 0;
      block_->prepare(wave);
    }
    for (; layer < spec.num_layers(); ++layer) {
      keys_->add(block_->attention(wave, layer));
      rows_->add(wave.rows());
      if (spec.layers[layer].moe) {
        wave.layer = layer;
        trace("moe_input", layer, wave);
        out.emit(kRouted, {.type = MessageType::wave, .object = &wave});
        return Wait::none;
      }
      block_->dense_ffn(wave, layer);
      trace("hidden_states", layer + 1, wave);
    }
    out.emit(kFinished, {.type = MessageType::wave, .object = &wave});
    return Wait::none;
  }

  void stop() noexcept override { block_.reset(); }

 private:
  void trace(std::string_view name, std::uint32_t layer, const Wave& wave) const {
    TraceRecorder* recorder = services_->trace;
    if (recorder == nullptr || !recorder->wants_values()) return;
    const Step& step = *wave.step;
    const std::size_t hidden = services_->plan.spec->hidden_size;
    for (std::size_t row = wave.row_begin; row < wave.row_end; ++row) {
      recorder->values(name, layer, *step.sequences[row], step.positions[row],
                       {step.residual + row * hidden, hidden});
    }
  }

  const Services* services_ = nullptr;
  std::optional<TransformerBlock> block_;
  Counter* rows_ = nullptr;
  Counter* keys_ = nullptr;
};

}  // namespace

const StageInfo kAttendInfo = {
    .kind = "attend",
    .help = "attention of each layer and the FFN of dense layers, up to the next MoE layer",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = kParams,
    .metrics = kMetrics,
    .max_emits = 1,
    .memory = {.dense = true, .kv = true, .steps = true},
};

std::unique_ptr<Stage> create_attend() { return std::make_unique<Attend>(); }

std::uint64_t attend_memory_bytes(const PlanInputs& inputs) { return TransformerBlock::memory_bytes(inputs); }

}  // namespace colibri
