// block_in: hidden states of a host to steps of one MoE layer each.
//
// Owns the free steps, as admit does in a whole pipeline: each is filled by one pull, sent
// wave by wave, and comes back when block_out has handed its results over. Rows that are no
// numbers are found here, so that one of them costs a result and nothing else.
#include "stages/block_in.hpp"

#include <cmath>
#include <colibri/services.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "stages/row_tiles.hpp"
#include "stages/step_builder.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"done", MessageType::step_done, "steps whose results were handed over", true, false, true},
};
constexpr PortInfo kOutputs[] = {
    {"waves", MessageType::wave, "waves of rows that need the experts of their layer", true, false, false,
     "attended"},
};
constexpr MetricInfo kMetrics[] = {
    {"rows_total", "rows taken"},
    {"bad_rows_total", "of these, rows that hold a value that is not finite"},
    {"steps_total", "steps built"},
};

class BlockIn final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    services_ = &context.services();
    if (services_->hidden_source == nullptr) {
      return {
          ErrorCode::invalid_input,
          "a pipeline with a block_in stage needs a source of hidden states; run it with `colibri run`, or "
          "set Job::hidden_source"};
    }
    hidden_ = services_->plan.spec->hidden_size;
    for (Step& step : services_->steps) free_steps_.push_back(&step);
    sequences_.resize(services_->steps.size());
    rows_ = context.counter("rows_total");
    bad_rows_ = context.counter("bad_rows_total");
    steps_ = context.counter("steps_total");
    return {};
  }

  // A step came back, or the source has something again: `resume` follows, as for every source.
  Wait on_message(Message& message, Emitter&) override {
    if (message.port == kCompletionPort) {
      waiting_ = false;
    } else {
      free_steps_.push_back(message.step());
    }
    return Wait::none;
  }

  Wait resume(Emitter& out) override {
    if (ended_) return Wait::input;
    if (!send_waves(out)) return Wait::output_space;
    if (source_ended_ || (services_->stopping && services_->stopping())) {
      if (free_steps_.size() == services_->steps.size()) {
        ended_ = true;
        out.end();
      }
      return Wait::input;
    }
    if (free_steps_.empty() || waiting_) return Wait::input;
    const Result<HiddenSource::Pull> pulled = fill_step();
    if (!pulled) {
      services_->fail_job(pulled.status());
      source_ended_ = true;
      return Wait::none;
    }
    switch (*pulled) {
      case HiddenSource::Pull::rows: break;
      case HiddenSource::Pull::end: source_ended_ = true; break;
      case HiddenSource::Pull::wait:
        waiting_ = true;
        services_->hidden_source->on_ready([&port = context_->completion_port()] { port.post(Message{}); });
        break;
    }
    return Wait::none;
  }

  // The source may outlive the completion port that it would notify.
  void stop() noexcept override {
    if (waiting_) services_->hidden_source->on_ready(nullptr);
    waiting_ = false;
    free_steps_.clear();
    sequences_.clear();
  }

 private:
  // Pulls into a free step, which is then the one whose waves are sent.
  Result<HiddenSource::Pull> fill_step() {
    Step& step = *free_steps_.back();
    HiddenRows rows;
    const std::uint32_t max_rows = services_->plan.max_rows;
    COLIBRI_ASSIGN_OR_RETURN(
        const HiddenSource::Pull pulled,
        services_->hidden_source->pull(rows, {step.residual, std::size_t{max_rows} * hidden_}));
    if (pulled != HiddenSource::Pull::rows) return pulled;
    COLIBRI_RETURN_IF_ERROR(check(rows));
    free_steps_.pop_back();
    label_rows(step, rows);
    find_bad_rows(step);
    step.followed = false;  // the next one goes through one layer, too, and that may be any
    cut_into_waves(step, next_serial_++, services_->plan.wave_rows, rows.layer);
    rows_->add(rows.rows);
    steps_->add(1);
    building_ = &step;
    next_wave_ = 0;
    return pulled;
  }

  Status check(const HiddenRows& rows) const {
    const ModelSpec& spec = *services_->plan.spec;
    if (rows.layer >= spec.num_layers() || !spec.layers[rows.layer].moe) {
      return {ErrorCode::invalid_input, "hidden states for a layer without experts: " + rows.name +
                                            ", layer " + std::to_string(rows.layer) +
                                            "; give rows of MoE layers only"};
    }
    if (rows.rows > 0 && rows.rows <= services_->plan.max_rows && rows.first_row <= UINT32_MAX - rows.rows)
      return {};
    return {ErrorCode::invalid_input,
            "hidden states of a number of rows that does not fit a step: " + rows.name + ", " +
                std::to_string(rows.rows) + " rows from " + std::to_string(rows.first_row) + "; give 1 to " +
                std::to_string(services_->plan.max_rows)};
  }

  // Who the rows are, for block_out, for taps and traces: what a sequence tells of rows made of tokens.
  void label_rows(Step& step, const HiddenRows& rows) {
    Sequence& batch = sequences_[step.slot];
    batch.request.id = rows.name;
    batch.request.index = rows.batch;
    step.rows = rows.rows;
    for (std::uint32_t row = 0; row < rows.rows; ++row) {
      step.sequences[row] = &batch;
      step.tokens[row] = 0;
      step.positions[row] = rows.first_row + row;
      step.flags[row] = kRowNone;
      step.row_status[row] = Status();
    }
  }

  // A row with a value that is not finite fails, and goes on as zeros: it takes its place in the step, and
  // nothing that is not a number spreads.
  void find_bad_rows(Step& step) {
    for_ranges(*context_, step.rows, hidden_, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row) {
        float* values = step.residual + std::size_t{row} * hidden_;
        std::size_t column = 0;
        while (column < hidden_ && std::isfinite(values[column])) ++column;
        if (column == hidden_) continue;
        step.row_status[row] =
            Status(ErrorCode::invalid_input, "the input holds a value that is not finite, in column " +
                                                 std::to_string(column) + "; correct that row");
        std::memset(values, 0, hidden_ * sizeof(float));
      }
    });
    for (std::uint32_t row = 0; row < step.rows; ++row) bad_rows_->add(step.row_status[row].is_ok() ? 0 : 1);
  }

  // False while a wave has no room.
  bool send_waves(Emitter& out) {
    while (building_ != nullptr) {
      if (out.room(0) == 0) return false;
      Wave& wave = building_->waves[next_wave_++];
      // With its last wave the step is out of our hands: it may be done before we look again.
      if (next_wave_ == building_->wave_count) building_ = nullptr;
      out.emit(0, {.type = MessageType::wave, .object = &wave});
    }
    return true;
  }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  std::size_t hidden_ = 0;
  std::vector<Step*> free_steps_;
  std::vector<Sequence> sequences_;  // [steps] stands for the batch that a step's rows are of
  std::uint64_t next_serial_ = 1;
  Step* building_ = nullptr;  // has waves that are not sent
  std::uint32_t next_wave_ = 0;
  bool waiting_ = false;  // the source was asked to notify
  bool source_ended_ = false;
  bool ended_ = false;
  Counter *rows_ = nullptr, *bad_rows_ = nullptr, *steps_ = nullptr;
};

}  // namespace

const StageInfo kBlockInInfo = {
    .kind = "block_in",
    .help = "takes hidden states from the host, for the experts of one layer a step",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = {},
    .metrics = kMetrics,
    .max_emits = 1,
    .source = true,
    .memory = {.steps = true},
};

std::unique_ptr<Stage> create_block_in() { return std::make_unique<BlockIn>(); }

}  // namespace colibri
