#include "runtime/engine/message_credits.hpp"

#include <algorithm>
#include <string>

namespace colibri {
namespace {

// Off cycles a full edge only makes its producer wait.
constexpr std::uint32_t kRequestCapacity = 64;
// Streamed pieces and results: the writer is woken for each, so a few hundred never fill up in practice.
constexpr std::uint32_t kOutcomeCapacity = 256;
constexpr std::uint32_t kHostCapacity = 64;

std::uint64_t visits_of(const PlanInputs& plan) { return std::uint64_t{2} * plan.in_flight; }

}  // namespace

std::optional<PlanInputs> declared_steps(const PipelineSpec& pipeline) {
  if (!pipeline.steps.max_rows || !pipeline.steps.wave_rows) return std::nullopt;
  PlanInputs inputs;
  inputs.max_rows = *pipeline.steps.max_rows;
  inputs.wave_rows = std::min(*pipeline.steps.wave_rows, inputs.max_rows);
  inputs.in_flight = pipeline.steps.in_flight.value_or(1);  // one at least
  return inputs;
}

MessageCredits message_credits(const PlanInputs& plan, std::uint64_t hint_batches) {
  MessageCredits credits{};
  auto set = [&credits](MessageType type, std::uint64_t count) {
    credits[static_cast<std::size_t>(type)] =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(count, kMaximumEdgeCapacity));
  };
  const std::uint64_t waves = plan.wave_credits();
  set(MessageType::wave, waves);
  // One a step. Where that is one alone, others tell of results that came after it: of the step before, and
  // of this one.
  set(MessageType::step_done, plan.in_flight == 1 ? 3 : plan.in_flight);
  set(MessageType::visit, visits_of(plan));
  // One a wave, and one more a wave that tells the end of a visit in which it demanded nothing new.
  set(MessageType::demand, 2 * waves);
  if (plan.spec != nullptr) {
    const std::uint64_t experts = visits_of(plan) * (std::uint64_t{plan.spec->num_experts} + 1);
    set(MessageType::expert, experts);
    set(MessageType::slot, experts);
    set(MessageType::expert_done, experts);
  }
  set(MessageType::residual_copy, hint_batches);
  set(MessageType::hint, hint_batches);
  return credits;
}

std::uint32_t automatic_capacity(MessageType type, const MessageCredits& credits) noexcept {
  switch (type) {
    case MessageType::request: return kRequestCapacity;
    case MessageType::outcome: return kOutcomeCapacity;
    case MessageType::host: return kHostCapacity;
    default: return credits[static_cast<std::size_t>(type)];
  }
}

void check_circulation(const PipelineSpec& pipeline, const PlanInputs& inputs, PipelineProblems& problems) {
  const std::uint64_t waves = inputs.wave_credits();
  if (2 * waves > kMaximumEdgeCapacity) {  // demands, as many as two a wave
    const bool given = pipeline.steps.wave_rows.has_value();
    problems.add(given ? pipeline.steps.wave_rows_origin : pipeline.steps.max_rows_origin,
                 given ? "steps.wave_rows" : "steps.max_rows",
                 "too many waves: " + std::to_string(waves) + " in " + std::to_string(inputs.in_flight) +
                     " steps of " + std::to_string(inputs.max_rows) + " rows; expected at most " +
                     std::to_string(kMaximumEdgeCapacity / 2) +
                     ": raise steps.wave_rows or lower steps.max_rows");
  }
  const std::uint64_t experts = inputs.spec == nullptr ? 0 : inputs.spec->num_experts;
  if (visits_of(inputs) * (experts + 1) > kMaximumEdgeCapacity) {
    problems.add(pipeline.steps.in_flight_origin, "steps.in_flight",
                 "too many steps in flight: " + std::to_string(inputs.in_flight) + " with " +
                     std::to_string(experts) + " experts a layer; expected at most " +
                     std::to_string(kMaximumEdgeCapacity / 2 / (experts + 1)));
  }
}

}  // namespace colibri
