// StepBuilder: packs rows of sequences into a step and cuts the step into waves.
//
// Rows of one sequence are contiguous and in ascending position; every row says what
// `sample` has to do with it.
#pragma once

#include <algorithm>
#include <colibri/messages.hpp>
#include <cstdint>

namespace colibri {

// Cuts a step's rows into waves of `wave_rows`; the last may be shorter.
inline void cut_into_waves(Step& step, std::uint64_t serial, std::uint32_t wave_rows, std::uint32_t layer) {
  step.serial = serial;
  step.waves_sampled = 0;
  step.wave_count = (step.rows + wave_rows - 1) / wave_rows;
  for (std::uint32_t index = 0; index < step.wave_count; ++index) {
    const std::uint32_t begin = index * wave_rows;
    step.waves[index] = {&step, index, begin, std::min(step.rows, begin + wave_rows), layer};
  }
}

class StepBuilder {
 public:
  // `step` is free and has room for max_rows.
  StepBuilder(Step& step, std::uint32_t max_rows) : step_(step), max_rows_(max_rows) { step_.rows = 0; }

  std::uint32_t rows() const noexcept { return step_.rows; }
  std::uint32_t room() const noexcept { return max_rows_ - step_.rows; }

  // Adds up to room() of the sequence's rows from `computed` on; returns how many.
  std::uint32_t add(Sequence& sequence) {
    const auto ready = static_cast<std::uint32_t>(sequence.tokens.size()) - sequence.computed;
    const std::uint32_t count = std::min(ready, room());
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t position = sequence.computed + i;
      const std::uint32_t row = step_.rows++;
      step_.sequences[row] = &sequence;
      step_.tokens[row] = sequence.tokens[position];
      step_.positions[row] = position;
      step_.flags[row] = flags(sequence, position);
      step_.row_status[row] = Status();
    }
    return count;
  }

  void finish(std::uint64_t serial, std::uint32_t wave_rows) { cut_into_waves(step_, serial, wave_rows, 0); }

 private:
  static std::uint8_t flags(const Sequence& sequence, std::uint32_t position) noexcept {
    const bool last_of_prompt = position + 1 == sequence.prompt_size;
    std::uint8_t flags = last_of_prompt ? kRowLast : kRowNone;
    switch (sequence.request.task) {
      case Task::generate:
        if (position + 1 >= sequence.prompt_size) flags |= kRowSample;
        break;
      case Task::score:
        if (!last_of_prompt) flags |= kRowScore;
        break;
      case Task::embed:
        if (last_of_prompt || sequence.request.pooling == Pooling::mean) flags |= kRowEmbed;
        break;
    }
    return flags;
  }

  Step& step_;
  std::uint32_t max_rows_;
};

}  // namespace colibri
