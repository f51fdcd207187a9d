// block_out: hands what the experts add to each row to Services::hidden_sink.
//
// A sink that fails ends the job; steps still go back to block_in, so that what is in
// flight ends.
#include "stages/block_out.hpp"

#include <colibri/services.hpp>
#include <utility>

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"waves", MessageType::wave, "waves whose experts are added up", true, false, false, "combined"},
};
constexpr PortInfo kOutputs[] = {
    {"done", MessageType::step_done, "steps whose results were handed over"},
};
constexpr MetricInfo kMetrics[] = {
    {"rows_total", "rows handed over"},
    {"failed_rows_total", "of these, rows without a result"},
    {"dropped_rows_total", "rows dropped because the sink had failed"},
};

class BlockOut final : public Stage {
 public:
  Status start(StageContext& context) override {
    services_ = &context.services();
    if (services_->hidden_sink == nullptr) {
      return {
          ErrorCode::invalid_input,
          "a pipeline with a block_out stage needs a sink for hidden states; run it with `colibri run`, or "
          "set Job::hidden_sink"};
    }
    rows_ = context.counter("rows_total");
    failed_rows_ = context.counter("failed_rows_total");
    dropped_rows_ = context.counter("dropped_rows_total");
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    const Wave& wave = *message.wave();
    Step& step = *wave.step;
    hand_over(wave);
    if (++step.waves_sampled == step.wave_count)
      out.emit(0, {.type = MessageType::step_done, .object = &step});
    return Wait::none;
  }

 private:
  void hand_over(const Wave& wave) {
    if (broken_) {
      dropped_rows_->add(wave.rows());
      return;
    }
    const Step& step = *wave.step;
    const std::size_t hidden = services_->plan.spec->hidden_size;
    const Request& batch = step.sequences[wave.row_begin]->request;
    HiddenRows rows;
    rows.name = batch.id;
    rows.batch = batch.index;
    rows.layer = wave.layer;
    rows.first_row = step.positions[wave.row_begin];
    rows.rows = wave.rows();
    const std::size_t k = services_->plan.spec->num_experts_per_token;
    const HiddenResults results = {
        .output = {step.normed + wave.row_begin * hidden, wave.rows() * hidden},
        .experts = {step.picks + wave.row_begin * k, wave.rows() * k},
        .weights = {step.pick_weights + wave.row_begin * k, wave.rows() * k},
        .status = {step.row_status + wave.row_begin, wave.rows()},
    };
    if (Status taken = services_->hidden_sink->rows(rows, results); !taken) {
      dropped_rows_->add(wave.rows());
      broken_ = true;
      services_->fail_job(std::move(taken));
      return;
    }
    rows_->add(wave.rows());
    for (const Status& row : results.status) failed_rows_->add(row.is_ok() ? 0 : 1);
  }

  const Services* services_ = nullptr;
  bool broken_ = false;  // the sink has failed
  Counter *rows_ = nullptr, *failed_rows_ = nullptr, *dropped_rows_ = nullptr;
};

}  // namespace

const StageInfo kBlockOutInfo = {
    .kind = "block_out",
    .help = "hands what the experts add to each row to the host",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = {},
    .metrics = kMetrics,
    .max_emits = 1,
    .memory = {.steps = true},
};

std::unique_ptr<Stage> create_block_out() { return std::make_unique<BlockOut>(); }

}  // namespace colibri
