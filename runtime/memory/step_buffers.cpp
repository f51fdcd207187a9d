#include "runtime/memory/step_buffers.hpp"

#include "kernels/packed_matrix.hpp"

namespace colibri {
namespace {

void lay_out_visit(MemoryCursor& memory, const PlanInputs& inputs, Visit& visit) {
  const std::uint64_t experts = inputs.spec->num_experts;
  const std::uint64_t picks = std::uint64_t{inputs.max_rows} * inputs.spec->num_experts_per_token;
  visit.experts = memory.take<std::uint32_t>(experts);
  visit.row_offsets = memory.take<std::uint32_t>(experts + 1);
  visit.row_list = memory.take<std::uint32_t>(picks);
  visit.places = memory.take<std::uint32_t>(picks);
  visit.wave_pending = memory.take<std::uint32_t>(inputs.waves_per_step());
}

void lay_out_step(MemoryCursor& memory, const PlanInputs& inputs, Step& step) {
  const ModelSpec& spec = *inputs.spec;
  const std::uint64_t rows = inputs.max_rows;
  const std::uint64_t hidden = spec.hidden_size;
  const std::uint64_t picks = rows * spec.num_experts_per_token;
  step.waves = memory.take<Wave>(inputs.waves_per_step());
  step.sequences = memory.take<Sequence*>(rows);
  step.tokens = memory.take<std::int32_t>(rows);
  step.positions = memory.take<std::uint32_t>(rows);
  step.flags = memory.take<std::uint8_t>(rows);
  step.residual = memory.take<float>(rows * hidden);
  step.normed = memory.take<float>(rows * hidden);
  if (kernels::has_integer_weights(spec.weight_dtype)) {
    std::byte* quantized = memory.take_quantized(rows, spec.hidden_size);
    if (quantized != nullptr)
      step.normed_quantized = kernels::quantized_rows_at(quantized, rows, spec.hidden_size);
  }
  step.router_logits = memory.take<float>(rows * spec.num_experts);
  step.picks = memory.take<std::uint32_t>(picks);
  step.pick_weights = memory.take<float>(picks);
  step.expert_out = memory.take<float>(picks * hidden);
  if (spec.shared_expert.intermediate_size > 0) step.shared_out = memory.take<float>(rows * hidden);
  for (Visit& visit : step.visits) lay_out_visit(memory, inputs, visit);
}

void lay_out_hints(MemoryCursor& memory, const PlanInputs& inputs, HintBatch& batch) {
  batch.residual = memory.take<float>(std::uint64_t{inputs.wave_rows} * inputs.spec->hidden_size);
  batch.picks =
      memory.take<std::uint32_t>(std::uint64_t{inputs.wave_rows} * inputs.spec->num_experts_per_token);
  for (std::uint32_t depth = 0; depth < inputs.hint_depth; ++depth) {
    batch.targets[depth].experts = memory.take<std::uint32_t>(inputs.spec->num_experts);
    batch.targets[depth].probabilities = memory.take<float>(inputs.spec->num_experts);
  }
}

}  // namespace

std::uint64_t step_bytes(const PlanInputs& inputs) {
  MemoryCursor measure;
  Step step;
  lay_out_step(measure, inputs, step);
  return measure.used();
}

std::uint64_t hint_batch_bytes(const PlanInputs& inputs) {
  MemoryCursor measure;
  HintBatch batch;
  lay_out_hints(measure, inputs, batch);
  return measure.used();
}

StepPool::StepPool(const PlanInputs& inputs, std::uint64_t batches, std::span<std::byte> memory)
    : steps_(inputs.in_flight),
      batches_(batches),
      row_status_(inputs.in_flight),
      expert_status_(2 * inputs.in_flight),
      records_(2 * inputs.in_flight),
      next_done_(2 * inputs.in_flight) {
  MemoryCursor cursor(memory);
  for (std::uint32_t i = 0; i < inputs.in_flight; ++i) {
    Step& step = steps_[i];
    step.slot = i;
    lay_out_step(cursor, inputs, step);
    row_status_[i].resize(inputs.max_rows);
    step.row_status = row_status_[i].data();
    for (std::uint32_t v = 0; v < 2; ++v) {
      expert_status_[2 * i + v].resize(inputs.spec->num_experts);
      step.visits[v].expert_status = expert_status_[2 * i + v].data();
      records_[2 * i + v].resize(inputs.spec->num_experts);
      step.visits[v].records = records_[2 * i + v].data();
      next_done_[2 * i + v].resize(inputs.spec->num_experts + 1);
      step.visits[v].next_done = next_done_[2 * i + v].data();
    }
  }
  for (HintBatch& batch : batches_) lay_out_hints(cursor, inputs, batch);
}

}  // namespace colibri
