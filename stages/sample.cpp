// sample: final norm and output head, only for rows that were asked for something, in
// tiles of rows so that the logits of a large vocabulary stay small.
//
// The rows of a sequence arrive in position order, so sums over positions have one order
// whatever the steps and waves were. A sequence that fails is answered at once and only once.
//
// Where no next token depends on it (Step::answered_later), the rows are kept and the step is given back as
// it is: while the next one's experts are read there is time for the head, which no drive could use
// otherwise.
#include "stages/sample.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <colibri/services.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stages/dense_weights.hpp"
#include "stages/memory_cursor.hpp"
#include "stages/row_tiles.hpp"
#include "stages/sampling.hpp"
#include "stages/sequence_output.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"waves", MessageType::wave, "waves after the last layer", true, false, false, "finished"},
};
constexpr PortInfo kOutputs[] = {
    {"done", MessageType::step_done,
     "steps of which all waves have come; and that results which came later are out"},
    {"outcomes", MessageType::outcome, "finished results and streamed pieces"},
};
constexpr MetricInfo kMetrics[] = {
    {"logit_rows_total", "rows whose logits were computed"},
    {"generated_tokens_total", "tokens drawn"},
    {"finished_total", "requests answered with a result"},
    {"failed_total", "requests answered with an error"},
};
enum Output : std::uint32_t { kDone, kOutcomes };

constexpr std::uint32_t kTileRows = 32;    // rows whose logits are held at a time
constexpr std::uint64_t kElementCost = 4;  // norm or exponential of one value, in multiply-adds

// Of rows that may be kept. Steps of more take so long that reads hide in them.
constexpr std::uint64_t kKeptBytes = 16 << 20;

// What `sample` must know of the rows of a step.
struct StepRows {
  Sequence* const* sequences = nullptr;      // [rows]
  const std::uint32_t* positions = nullptr;  // [rows]
  const std::uint8_t* flags = nullptr;       // [rows]
  const Status* row_status = nullptr;        // [rows]
  const float* residual = nullptr;           // [rows, hidden]
};

StepRows rows_of(const Step& step) noexcept {
  return {step.sequences, step.positions, step.flags, step.row_status, step.residual};
}

struct Scratch {
  float* normed = nullptr;         // [tile, hidden]
  std::byte* quantized = nullptr;  // [tile] rows; null unless weights are integers
  float* logits = nullptr;         // [tile, vocab]
  std::uint32_t* order = nullptr;  // [threads, vocab]
  float* weights = nullptr;        // [threads, vocab]
  float* kept = nullptr;           // [deferrable_rows, hidden]
};

std::uint32_t tile_rows(const PlanInputs& inputs) noexcept { return std::min(kTileRows, inputs.wave_rows); }

Scratch lay_out(MemoryCursor& cursor, const PlanInputs& inputs) {
  const ModelSpec& spec = *inputs.spec;
  const std::uint64_t rows = tile_rows(inputs);
  const std::uint64_t lanes = std::min<std::uint64_t>(rows, inputs.threads);
  Scratch scratch;
  scratch.normed = cursor.take<float>(rows * spec.hidden_size);
  if (kernels::has_integer_weights(spec.weight_dtype)) {
    scratch.quantized = cursor.take_quantized(rows, spec.hidden_size);
  }
  scratch.logits = cursor.take<float>(rows * spec.vocab_size);
  scratch.order = cursor.take<std::uint32_t>(lanes * spec.vocab_size);
  scratch.weights = cursor.take<float>(lanes * spec.vocab_size);
  scratch.kept = cursor.take<float>(std::uint64_t{deferrable_rows(inputs)} * spec.hidden_size);
  return scratch;
}

class Sample final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    services_ = &context.services();
    kernels_ = services_->kernels;
    spec_ = services_->plan.spec;
    output_.emplace(*spec_, services_->tokenizer);
    MemoryCursor cursor(context.memory());
    scratch_ = lay_out(cursor, services_->plan);
    const std::uint32_t rows = tile_rows(services_->plan);
    tile_.reserve(rows);
    logit_rows_.reserve(rows);
    draws_.resize(rows);
    pending_.reserve(std::size_t{2} * services_->plan.wave_rows);
    kept_.lay_out(deferrable_rows(services_->plan));
    logit_rows_total_ = context.counter("logit_rows_total");
    generated_ = context.counter("generated_tokens_total");
    finished_ = context.counter("finished_total");
    failed_ = context.counter("failed_total");
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    const Wave& wave = *message.wave();
    Step& step = *wave.step;
    const bool later = step.answered_later && !tracing();
    if (later) {
      keep(wave);
    } else {
      for (std::uint32_t row = wave.row_begin; row < wave.row_end;)
        row = sample_tile(rows_of(step), row, wave.row_end);
    }
    // Nothing below needs the step, nor its sequences unless they were kept: results were moved out.
    if (++step.waves_sampled == step.wave_count) {
      kept_.complete = later;
      out.emit(kDone, {.type = MessageType::step_done, .count = later ? 1U : 0U, .object = &step});
    }
    return what_next(out);
  }

  // Takes no waves while there is something left to do for the step before.
  Wait resume(Emitter& out) override {
    if (next_pending_ == pending_.size() && kept_.complete) {
      kept_.next = sample_tile(kept_.view(scratch_.kept), kept_.next, kept_.rows);
      if (kept_.next == kept_.rows) {
        kept_.clear();
        out.emit(kDone, {.type = MessageType::step_done});
      }
    }
    return what_next(out);
  }

  void stop() noexcept override {
    pending_.clear();
    next_pending_ = 0;
    kept_.clear();
  }

 private:
  // The rows of a step that was given back.
  struct KeptRows {
    void lay_out(std::uint32_t most) {
      sequences.resize(most);
      positions.resize(most);
      flags.resize(most);
      row_status.resize(most);
    }
    void clear() noexcept {
      rows = next = 0;
      complete = false;
    }
    StepRows view(const float* residual) const noexcept {
      return {sequences.data(), positions.data(), flags.data(), row_status.data(), residual};
    }
    std::uint32_t rows = 0, next = 0;  // next: the first that is not sampled
    bool complete = false;             // all waves have come
    std::vector<Sequence*> sequences;
    std::vector<std::uint32_t> positions;
    std::vector<std::uint8_t> flags;
    std::vector<Status> row_status;
  };

  // What was computed for one row of the tile.
  struct Draw {
    bool finite = true;
    TokenLogprob value;
  };

  bool tracing() const { return services_->trace != nullptr && services_->trace->wants_values(); }

  void keep(const Wave& wave) {
    Step& step = *wave.step;
    const std::size_t hidden = spec_->hidden_size;
    const std::uint32_t begin = wave.row_begin, end = wave.row_end;
    assert(begin == kept_.rows && "waves of one step at a time, in order");
    std::copy(step.sequences + begin, step.sequences + end, kept_.sequences.begin() + begin);
    std::copy(step.positions + begin, step.positions + end, kept_.positions.begin() + begin);
    std::copy(step.flags + begin, step.flags + end, kept_.flags.begin() + begin);
    std::move(step.row_status + begin, step.row_status + end, kept_.row_status.begin() + begin);
    std::copy(step.residual + begin * hidden, step.residual + end * hidden, scratch_.kept + begin * hidden);
    kept_.rows = end;
  }

  // Samples rows from `row` on, as many as make a tile; returns the one to go on with.
  std::uint32_t sample_tile(const StepRows& step, std::uint32_t row, std::uint32_t end) {
    const bool all_rows = tracing();
    for (; row < end && tile_.size() < tile_rows(services_->plan); ++row) {
      Sequence& sequence = *step.sequences[row];
      if (!step.row_status[row] && !sequence.finished) fail(sequence, step.row_status[row]);
      if (all_rows || (step.flags[row] != kRowNone && !sequence.finished)) tile_.push_back(row);
    }
    if (!tile_.empty()) run_tile(step, all_rows);
    return row;
  }

  void run_tile(const StepRows& step, bool all_rows) {
    const auto rows = static_cast<std::uint32_t>(tile_.size());
    const std::size_t hidden = spec_->hidden_size;
    for_ranges(*context_, rows, kElementCost * hidden, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t i = begin; i < end; ++i) {
        kernels_->rms_norm(step.residual + tile_[i] * hidden, services_->dense->final_norm,
                           spec_->rms_norm_eps, spec_->hidden_size, scratch_.normed + i * hidden);
      }
    });
    logit_rows_.clear();
    for (std::uint32_t i = 0; i < rows; ++i) {
      if (all_rows || (step.flags[tile_[i]] & (kRowSample | kRowScore)) != 0) logit_rows_.push_back(i);
    }
    compute_logits(rows);
    draw_rows(step);
    if (all_rows) trace(step);
    for (std::uint32_t i = 0, next = 0; i < rows; ++i) {
      const bool has_logits = next < logit_rows_.size() && logit_rows_[next] == i;
      finish_row(step, tile_[i], scratch_.normed + i * hidden, has_logits ? &draws_[next++] : nullptr);
    }
    tile_.clear();
  }

  // logits [logit_rows_, vocab] of the given rows of the tile.
  void compute_logits(std::uint32_t rows) {
    if (logit_rows_.empty()) return;
    const kernels::PackedMatrix& head = services_->dense->head;
    RowsView view{.x = scratch_.normed, .stride = spec_->hidden_size, .row_index = logit_rows_.data()};
    if (kernels::has_integer_weights(head.format)) {
      view.quantized =
          kernels::quantized_rows_at(scratch_.quantized, tile_rows(services_->plan), head.inputs);
      kernels_->quantize_rows(scratch_.normed, head.inputs, rows, head.inputs, view.quantized, 0);
    }
    project(*context_, *kernels_, head, view, static_cast<std::uint32_t>(logit_rows_.size()), scratch_.logits,
            spec_->vocab_size);
    logit_rows_total_->add(logit_rows_.size());
  }

  // Draws and log-probabilities; rows are independent, each lane has scratch of its own.
  void draw_rows(const StepRows& step) {
    const std::size_t rows = logit_rows_.size();
    const std::size_t vocab = spec_->vocab_size;
    const std::size_t lanes = std::min<std::size_t>(
        tiles_for(rows, kElementCost * vocab, context_->workers()), services_->plan.threads);
    auto run_lane = [&](std::size_t lane) {
      const auto [begin, end] = tile_range(rows, lanes, lane);
      for (std::size_t i = begin; i < end; ++i) {
        draw(step, tile_[logit_rows_[i]], scratch_.logits + i * vocab,
             {scratch_.order + lane * vocab, scratch_.weights + lane * vocab}, draws_[i]);
      }
    };
    if (lanes == 1) return run_lane(0);
    context_->parallel(lanes, run_lane);
  }

  void draw(const StepRows& step, std::uint32_t row, const float* logits, const SamplingScratch& scratch,
            Draw& draw) const {
    const Sequence& sequence = *step.sequences[row];
    const Request& request = sequence.request;
    const std::uint32_t vocab = spec_->vocab_size;
    const std::uint32_t next_position = step.positions[row] + 1;
    draw = {.finite = all_finite(logits, vocab)};
    if (!draw.finite) return;
    if ((step.flags[row] & kRowScore) != 0) {
      draw.value.token = sequence.tokens[next_position];
      draw.value.logprob = log_normalizer(*kernels_, logits, vocab).logprob(logits[draw.value.token]);
    } else if ((step.flags[row] & kRowSample) != 0) {
      const SamplingForm form{request.temperature, request.top_k, request.top_p};
      draw.value.token =
          draw_token(*kernels_, logits, vocab, form, uniform_draw(request.seed, next_position), scratch);
      if (!request.logprobs_given) return;
      const LogNormalizer normalizer = log_normalizer(*kernels_, logits, vocab);
      draw.value.logprob = normalizer.logprob(logits[draw.value.token]);
      best_logprobs(logits, vocab, normalizer, request.logprobs, scratch.order, draw.value.top);
    }
  }

  // Gives one row's results to its sequence, in row order. state [hidden]; `drawn` null without logits.
  void finish_row(const StepRows& step, std::uint32_t row, const float* state, Draw* drawn) {
    Sequence& sequence = *step.sequences[row];
    const std::uint8_t flags = step.flags[row];
    if (sequence.finished) return;
    if (drawn != nullptr && !drawn->finite) {
      fail(sequence, Status(ErrorCode::corrupt, "the logits hold a value that is not finite, at position " +
                                                    std::to_string(step.positions[row]) +
                                                    "; check the model with `colibri verify`"));
      return;
    }
    if ((flags & kRowEmbed) != 0) pool(sequence, state);
    if ((flags & kRowScore) != 0) sequence.result.prompt_logprobs.push_back(drawn->value.logprob);
    if ((flags & kRowSample) != 0) {
      accept(sequence, std::move(drawn->value));
    } else if ((flags & kRowLast) != 0) {
      if (sequence.request.task == Task::embed && !finish_embedding(sequence)) return;
      complete(sequence);
    }
  }

  void accept(Sequence& sequence, TokenLogprob&& drawn) {
    SequenceOutput::Accepted accepted = output_->accept(sequence, std::move(drawn));
    generated_->add(1);
    if (sequence.request.stream && !accepted.piece.empty()) {
      auto outcome = std::make_unique<Outcome>();
      outcome->done = false;
      outcome->result.index = sequence.request.index;
      outcome->piece = std::move(accepted.piece);
      pending_.push_back(std::move(outcome));
    }
    if (accepted.finished) complete(sequence);
  }

  void pool(Sequence& sequence, const float* state) const {
    const std::uint32_t hidden = spec_->hidden_size;
    if (sequence.request.pooling == Pooling::last) {
      sequence.pooled.assign(state, state + hidden);
    } else {
      sequence.pooled.resize(hidden, 0.0F);
      kernels_->add(state, hidden, sequence.pooled.data());
    }
  }

  // False when the embedding is not finite; the sequence has then failed.
  bool finish_embedding(Sequence& sequence) {
    std::vector<float>& pooled = sequence.pooled;
    if (sequence.request.pooling == Pooling::mean) {
      for (float& value : pooled) value /= static_cast<float>(sequence.prompt_size);
    }
    if (sequence.request.normalize) {
      const float length = std::sqrt(kernels_->dot(pooled.data(), pooled.data(), pooled.size()));
      if (length > 0.0F) {
        for (float& value : pooled) value /= length;
      }
    }
    if (!all_finite(pooled.data(), pooled.size())) {
      fail(sequence,
           Status(ErrorCode::corrupt,
                  "the embedding holds a value that is not finite; check the model with `colibri verify`"));
      return false;
    }
    sequence.result.embedding = std::move(pooled);
    return true;
  }

  void complete(Sequence& sequence) {
    pending_.push_back(output_->complete(sequence));
    finished_->add(1);
  }

  void fail(Sequence& sequence, Status error) {
    pending_.push_back(output_->fail(sequence, std::move(error)));
    failed_->add(1);
  }

  void trace(const StepRows& step) const {
    const std::size_t vocab = spec_->vocab_size;
    for (std::size_t i = 0; i < logit_rows_.size(); ++i) {
      const std::uint32_t row = tile_[logit_rows_[i]];
      services_->trace->values("logits", 0, *step.sequences[row], step.positions[row],
                               {scratch_.logits + i * vocab, vocab});
    }
  }

  // A tile may finish more requests than the edge has room for.
  Wait what_next(Emitter& out) {
    while (next_pending_ < pending_.size() && out.room(kOutcomes) > 0) {
      out.emit(kOutcomes, outcome_message(std::move(pending_[next_pending_++])));
    }
    if (next_pending_ < pending_.size()) return Wait::output_space;
    pending_.clear();
    next_pending_ = 0;
    return kept_.complete ? Wait::output_space : Wait::none;
  }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  const kernels::KernelTable* kernels_ = nullptr;
  const ModelSpec* spec_ = nullptr;
  std::optional<SequenceOutput> output_;
  Scratch scratch_;
  KeptRows kept_;
  std::vector<std::uint32_t> tile_;        // step rows of the tile
  std::vector<std::uint32_t> logit_rows_;  // indices into tile_
  std::vector<Draw> draws_;                // of logit_rows_
  std::vector<std::unique_ptr<Outcome>> pending_;
  std::size_t next_pending_ = 0;
  Counter* logit_rows_total_ = nullptr;
  Counter* generated_ = nullptr;
  Counter* finished_ = nullptr;
  Counter* failed_ = nullptr;
};

}  // namespace

const StageInfo kSampleInfo = {
    .kind = "sample",
    .help = "final norm, output head and sampling; finishes requests",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = {},
    .metrics = kMetrics,
    .max_emits = 1,
    .gives_way = true,
    .memory = {.dense = true, .steps = true},
};

std::unique_ptr<Stage> create_sample() { return std::make_unique<Sample>(); }

std::uint32_t deferrable_rows(const PlanInputs& inputs) noexcept {
  // With several steps in flight one computes while the other waits, and their waves come mixed.
  if (inputs.in_flight > 1) return 0;
  const std::uint64_t row_bytes = std::uint64_t{inputs.spec->hidden_size} * sizeof(float);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(inputs.max_rows, kKeptBytes / row_bytes));
}

std::uint64_t sample_memory_bytes(const PlanInputs& inputs) {
  MemoryCursor cursor;
  lay_out(cursor, inputs);
  return cursor.used();
}

}  // namespace colibri
