// predict: guesses which experts the next MoE layer will need.
#pragma once

#include <colibri/registry.hpp>
#include <memory>

namespace colibri {

extern const StageInfo kPredictInfo;
std::unique_ptr<Stage> create_predict();
std::uint64_t predict_memory_bytes(const PlanInputs& inputs);

}  // namespace colibri
