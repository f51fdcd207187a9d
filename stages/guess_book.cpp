#include "stages/guess_book.hpp"

#include <algorithm>

namespace colibri {
namespace {

// Trained routers, measured on several models: three of four guesses are right one layer ahead, and about
// 0.08 less for each layer more. Where a job starts; kPriorGuesses real ones weigh as much.
constexpr float kPriorPrecision = 0.76F;
constexpr float kPriorStep = 0.08F;
constexpr float kPriorGuesses = 32.0F;
// Counts are halved here, so that shares follow the job.
constexpr float kDecayGuesses = 8192.0F;

std::uint64_t entry_count(const PlanInputs& plan, std::uint32_t depth) {
  return std::uint64_t{plan.in_flight} * plan.waves_per_step() * (depth + 1) * depth;
}

}  // namespace

void GuessBook::lay_out(MemoryCursor& memory, const PlanInputs& plan, std::uint32_t depth) {
  memory_ = memory.take<std::uint32_t>(entry_count(plan, depth) * plan.wave_rows *
                                       plan.spec->num_experts_per_token);
}

void GuessBook::reset(const PlanInputs& plan, std::uint32_t depth) {
  depth_ = depth;
  picks_ = plan.spec->num_experts_per_token;
  experts_ = plan.spec->num_experts;
  waves_ = plan.waves_per_step();
  entries_.assign(entry_count(plan, depth), {});
  for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].picks = memory_ + i * plan.wave_rows * picks_;
  shares_.assign(std::size_t{plan.spec->num_moe_layers()} * depth * picks_, {});
  std::fill(std::begin(tallies_), std::end(tallies_), Tally{});
}

// Guesses about at most depth + 1 layers of a wave are of use at a time: its own and those ahead.
GuessBook::Entry& GuessBook::entry(const HintBatch& batch, std::uint32_t ordinal, std::uint32_t distance) {
  const std::size_t wave = std::size_t{batch.step_slot} * waves_ + batch.wave;
  return entries_[(wave * (depth_ + 1) + ordinal % (depth_ + 1)) * depth_ + distance - 1];
}

GuessBook::Share& GuessBook::share(std::uint32_t ordinal, std::uint32_t distance, std::uint32_t rank) {
  return shares_[(std::size_t{ordinal} * depth_ + distance - 1) * picks_ + rank];
}

std::uint32_t* GuessBook::note(const HintBatch& batch, std::uint32_t ordinal, std::uint32_t distance) {
  Entry& about = entry(batch, ordinal + distance, distance);
  about.step_serial = batch.step_serial;
  about.ordinal = ordinal + distance;
  about.rows = batch.rows;
  return about.picks;
}

void GuessBook::settle(const HintBatch& batch, std::uint32_t ordinal) {
  for (std::uint32_t distance = 1; distance <= depth_; ++distance) {
    Entry& about = entry(batch, ordinal, distance);
    const bool same =
        about.rows == batch.rows && about.step_serial == batch.step_serial && about.ordinal == ordinal;
    about.rows = 0;
    if (!same) continue;
    for (std::uint32_t rank = 0; rank < picks_; ++rank) {
      std::uint32_t named = 0, right = 0;
      for (std::size_t row = 0; row < batch.rows; ++row) {
        const std::uint32_t guess = about.picks[row * picks_ + rank];
        if (guess == experts_) continue;
        const std::uint32_t* picked = batch.picks + row * picks_;
        ++named;
        right += std::find(picked, picked + picks_, guess) != picked + picks_ ? 1 : 0;
      }
      tallies_[distance - 1].named += named;
      tallies_[distance - 1].right += right;
      Share& learned = share(ordinal, distance, rank);
      learned.named += static_cast<float>(named);
      learned.right += static_cast<float>(right);
      if (learned.named < kDecayGuesses) continue;
      learned.named *= 0.5F;
      learned.right *= 0.5F;
    }
  }
}

float GuessBook::precision(std::uint32_t ordinal, std::uint32_t distance, std::uint32_t rank) const noexcept {
  const Share& learned = shares_[(std::size_t{ordinal} * depth_ + distance - 1) * picks_ + rank];
  const float prior = kPriorPrecision - kPriorStep * static_cast<float>(distance - 1);
  return (learned.right + prior * kPriorGuesses) / (learned.named + kPriorGuesses);
}

}  // namespace colibri
