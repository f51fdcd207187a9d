// embed: gathers the embedding row of each token, in its stored precision, widened to f32.
#include "stages/embed.hpp"

#include <colibri/services.hpp>

#include "stages/dense_weights.hpp"
#include "stages/row_tiles.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"waves", MessageType::wave, "waves of a new step", true, false, false, "new"},
};
constexpr PortInfo kOutputs[] = {
    {"waves", MessageType::wave, "the same waves, their residual rows filled", true, false, false,
     "embedded"},
};
constexpr MetricInfo kMetrics[] = {
    {"rows_total", "rows embedded"},
};

// Reading one weight out of a panel touches a cache line of its own; counted as so many multiply-adds.
constexpr std::uint64_t kGatherCost = 8;

class Embed final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    services_ = &context.services();
    rows_ = context.counter("rows_total");
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    Wave& wave = *message.wave();
    const Step& step = *wave.step;
    const std::size_t hidden = services_->plan.spec->hidden_size;
    const kernels::PackedMatrix& embedding = services_->dense->embedding;
    for_ranges(*context_, wave.rows(), kGatherCost * hidden, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::size_t row = wave.row_begin + begin; row < wave.row_begin + end; ++row) {
        kernels::unpack_row(embedding, static_cast<std::uint32_t>(step.tokens[row]),
                            step.residual + row * hidden);
      }
    });
    if (services_->trace != nullptr && services_->trace->wants_values()) {
      for (std::size_t row = wave.row_begin; row < wave.row_end; ++row) {
        services_->trace->values("hidden_states", 0, *step.sequences[row], step.positions[row],
                                 {step.residual + row * hidden, hidden});
      }
    }
    wave.layer = 0;
    rows_->add(wave.rows());
    out.emit(0, message);
    return Wait::none;
  }

 private:
  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  Counter* rows_ = nullptr;
};

}  // namespace

const StageInfo kEmbedInfo = {
    .kind = "embed",
    .help = "looks up the embedding of each token",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = {},
    .metrics = kMetrics,
    .max_emits = 1,
    .memory = {.dense = true, .steps = true},
};

std::unique_ptr<Stage> create_embed() { return std::make_unique<Embed>(); }

// Rows are written straight into the step's residual.
std::uint64_t embed_memory_bytes(const PlanInputs&) { return 0; }

}  // namespace colibri
