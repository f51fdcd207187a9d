// GuessBook: what was guessed for each wave, what it picked, and so how far guesses go.
//
// A guess about a layer is kept until the wave gets there; then its picks tell, by rank of
// the guess, how often it was right. These shares are the probabilities that hints carry.
#pragma once

#include <colibri/messages.hpp>
#include <colibri/registry.hpp>
#include <cstdint>
#include <vector>

#include "stages/memory_cursor.hpp"

namespace colibri {

class GuessBook {
 public:
  // How many picks were named for layers at one distance, and how many of them came.
  struct Tally {
    std::uint64_t named = 0;
    std::uint64_t right = 0;
  };

  // Lays out room for the guesses of all waves of all steps; depth: layers that guesses look ahead.
  void lay_out(MemoryCursor& memory, const PlanInputs& plan, std::uint32_t depth);
  // Forgets everything; after lay_out with memory.
  void reset(const PlanInputs& plan, std::uint32_t depth);

  // Room for what is guessed for the wave of `batch` in the MoE layer `distance` (from 1) after `ordinal`,
  // the ordinal of its own: [rows, k], likeliest pick of a row first, num_experts where there is no guess.
  std::uint32_t* note(const HintBatch& batch, std::uint32_t ordinal, std::uint32_t distance);
  // Compares what the wave picked in its layer with what was guessed for it.
  void settle(const HintBatch& batch, std::uint32_t ordinal);

  // Share of guesses of this rank about this layer that came true.
  float precision(std::uint32_t ordinal, std::uint32_t distance, std::uint32_t rank) const noexcept;
  const Tally& tally(std::uint32_t distance) const noexcept { return tallies_[distance - 1]; }

 private:
  // One guess: about a wave in a layer, from one distance.
  struct Entry {
    std::uint64_t step_serial = 0;
    std::uint32_t ordinal = 0;
    std::uint32_t rows = 0;  // 0: none
    std::uint32_t* picks = nullptr;
  };
  struct Share {
    float named = 0, right = 0;
  };

  Entry& entry(const HintBatch& batch, std::uint32_t ordinal, std::uint32_t distance);
  Share& share(std::uint32_t ordinal, std::uint32_t distance, std::uint32_t rank);

  std::uint32_t depth_ = 0, picks_ = 0, experts_ = 0, waves_ = 0;
  std::uint32_t* memory_ = nullptr;  // [steps][waves][ordinals mod depth + 1][depth][wave_rows, k]
  std::vector<Entry> entries_;       // the same without the last two
  std::vector<Share> shares_;        // [MoE layers][depth][k]
  Tally tallies_[kMaximumHintDepth];
};

}  // namespace colibri
