// How many messages of each type circulate at most: what edges on cycles must hold, so that an emit on a
// cycle never waits.
#pragma once

#include <colibri/registry.hpp>
#include <cstdint>
#include <optional>

#include "topology/pipeline_spec.hpp"

namespace colibri {

// Steps as the pipeline gives them, without a model (spec is null); nullopt when rows are left to the plan.
std::optional<PlanInputs> declared_steps(const PipelineSpec& pipeline);

// For edges with capacity auto and for the check. What is about experts is left out, as 0, without a model.
MessageCredits message_credits(const PlanInputs& plan, std::uint64_t hint_batches);

// What an edge with capacity auto holds.
std::uint32_t automatic_capacity(MessageType type, const MessageCredits& credits) noexcept;

// Adds a problem when more waves, or experts of more steps, would circulate than any edge can hold.
void check_circulation(const PipelineSpec& pipeline, const PlanInputs& inputs, PipelineProblems& problems);

}  // namespace colibri
