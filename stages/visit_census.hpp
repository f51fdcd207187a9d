// VisitCensus: how many experts of a layer a step touches, and which of them how many rows pick.
//
// Fed with the picks of waves. Tells when a step touches so much of a layer that guessing
// is not worth the trouble, and what is known of rows that nobody has guessed.
#pragma once

#include <colibri/messages.hpp>
#include <colibri/registry.hpp>
#include <cstdint>
#include <vector>

namespace colibri {

class VisitCensus {
 public:
  void reset(const PlanInputs& plan);
  // Counts the picks of a wave in its layer.
  void count(const HintBatch& batch, std::uint32_t ordinal);

  // Share of the layer's experts that the last steps touched; 0 before the first one has passed.
  float touched(std::uint32_t ordinal) const noexcept { return touched_[ordinal]; }
  // Share of the rows of the last steps that picked this expert.
  float rate(std::uint32_t ordinal, std::uint32_t expert) const noexcept {
    return rate_[std::size_t{ordinal} * experts_ + expert];
  }

 private:
  // The visit that a step is in.
  struct Open {
    std::uint64_t step_serial = 0;
    std::uint32_t ordinal = 0;
    std::uint32_t distinct = 0;  // 0: none
    std::uint32_t rows = 0;
    std::vector<std::uint32_t> picked;  // [experts] by how many of the rows
  };
  void close(Open& open);

  std::uint32_t experts_ = 0, picks_ = 0;
  std::vector<Open> open_;      // [steps]
  std::vector<float> touched_;  // [MoE layers]
  std::vector<float> rate_;     // [MoE layers, experts]
};

}  // namespace colibri
