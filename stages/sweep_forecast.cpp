#include "stages/sweep_forecast.hpp"

#include <algorithm>
#include <cmath>

namespace colibri {
namespace {

// Of many rows, the share that counts as independent. Measured on the demo model, over steps of 128 to 512
// rows: probabilities then are about what comes true, and of the highest ones none fails.
constexpr float kIndependent = 0.5F;

}  // namespace

void SweepForecast::reset(const PlanInputs& plan) {
  steps_.assign(plan.in_flight, {});
  for (Guessed& guessed : steps_) guessed.miss.assign(plan.spec->num_experts, 1.0F);
}

void SweepForecast::add(std::uint32_t step_slot, std::uint64_t step_serial, std::uint32_t ordinal,
                        std::uint32_t rows, float precision, std::span<const float> miss) {
  Guessed& guessed = steps_[step_slot];
  if (find(step_slot, step_serial, ordinal) == nullptr) {
    guessed.step_serial = step_serial;
    guessed.ordinal = ordinal;
    guessed.rows = 0;
    guessed.told = 0;
    std::fill(guessed.miss.begin(), guessed.miss.end(), 1.0F);
  }
  guessed.rows += rows;
  guessed.told += precision * static_cast<float>(rows);
  for (std::size_t expert = 0; expert < guessed.miss.size(); ++expert) guessed.miss[expert] *= miss[expert];
}

std::uint32_t SweepForecast::rows(std::uint32_t step_slot, std::uint64_t step_serial,
                                  std::uint32_t ordinal) const noexcept {
  const Guessed* guessed = find(step_slot, step_serial, ordinal);
  return guessed == nullptr ? 0 : guessed->rows;
}

float SweepForecast::probability(std::uint32_t step_slot, std::uint64_t step_serial, std::uint32_t ordinal,
                                 std::uint32_t expert, float rate, std::uint32_t step_rows) const noexcept {
  const Guessed* guessed = find(step_slot, step_serial, ordinal);
  const auto all_rows = static_cast<float>(step_rows);
  const float untold = std::max(all_rows - (guessed == nullptr ? 0.0F : guessed->told), 0.0F);
  float miss = std::pow(1 - std::min(rate, 1.0F), untold);
  if (guessed != nullptr) miss *= guessed->miss[expert];
  // One row is all that there is of it.
  return 1 - std::pow(miss, kIndependent + (1 - kIndependent) / std::max(all_rows, 1.0F));
}

const SweepForecast::Guessed* SweepForecast::find(std::uint32_t step_slot, std::uint64_t step_serial,
                                                  std::uint32_t ordinal) const noexcept {
  const Guessed& guessed = steps_[step_slot];
  const bool same = guessed.rows > 0 && guessed.step_serial == step_serial && guessed.ordinal == ordinal;
  return same ? &guessed : nullptr;
}

}  // namespace colibri
