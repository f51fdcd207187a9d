// SweepForecast: how likely a step touches an expert in a layer to which it has not come yet.
//
// Of the rows that have been guessed for the next layer, the chance that none of them picks the expert is
// known; of the others, and of what guesses miss, only how often rows use to pick it. Rows of a text are
// alike: together they tell about as much as half as many that have nothing to do with each other.
#pragma once

#include <colibri/registry.hpp>
#include <cstdint>
#include <span>
#include <vector>

namespace colibri {

class SweepForecast {
 public:
  void reset(const PlanInputs& plan);

  // A wave of the step has been guessed for the layer, the next one that it comes to. miss: [experts] chance
  // that none of its rows picks each; precision: share of the guesses that come true.
  void add(std::uint32_t step_slot, std::uint64_t step_serial, std::uint32_t ordinal, std::uint32_t rows,
           float precision, std::span<const float> miss);
  // Rows of the step that have been guessed for the layer.
  std::uint32_t rows(std::uint32_t step_slot, std::uint64_t step_serial,
                     std::uint32_t ordinal) const noexcept;
  // That a step of `step_rows` rows picks the expert. rate: share of rows that use to pick it.
  float probability(std::uint32_t step_slot, std::uint64_t step_serial, std::uint32_t ordinal,
                    std::uint32_t expert, float rate, std::uint32_t step_rows) const noexcept;

 private:
  // What is known of a step in the layer that it comes to next.
  struct Guessed {
    std::uint64_t step_serial = 0;
    std::uint32_t ordinal = 0;
    std::uint32_t rows = 0;   // 0: nothing
    float told = 0;           // rows that these speak for: guesses that come true, over the picks of a row
    std::vector<float> miss;  // [experts]
  };
  // Null: nothing is known of this step in this layer.
  const Guessed* find(std::uint32_t step_slot, std::uint64_t step_serial,
                      std::uint32_t ordinal) const noexcept;

  std::vector<Guessed> steps_;  // [steps]
};

}  // namespace colibri
