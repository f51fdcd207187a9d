#include "stages/hint_gate.hpp"

#include <algorithm>
#include <cmath>

namespace colibri {
namespace {

// Samples that a mean looks back.
constexpr std::uint32_t kSamplesKept = 64;
// Of each mean, before anything is held back.
constexpr std::uint32_t kFewestSamples = 1;
// What a probability counts for until hints like it are settled, and after how many of these both halve.
constexpr float kPriorHints = 8, kDecayHints = 512;
// Reading what is demanded in any case costs nothing.
constexpr float kCertain = 1.0F;

}  // namespace

std::size_t HintGate::range_of(float named) noexcept {
  named = std::clamp(named, 0.0F, 1.0F) * (kEqual + 1);
  if (named < kEqual) return static_cast<std::size_t>(named);
  std::size_t range = kEqual;
  for (float miss = (kEqual + 1 - named) * 2; miss <= 1 && range < kRanges - 1; miss *= 2) ++range;
  return range;
}

void HintGate::Mean::add(double sample) noexcept {
  samples = std::min(samples + 1, kSamplesKept);
  value += (sample - value) / samples;
}

void HintGate::submitted(std::uint32_t slot, bool demanded, Time now) noexcept {
  flights_[slot] = {.since = now, .position = ++in_flight_, .demanded = demanded};
  demanded_ += demanded ? 1 : 0;
}

void HintGate::demanded(std::uint32_t slot) noexcept {
  Flight& flight = flights_[slot];
  if (flight.position == 0 || flight.demanded) return;
  flight.demanded = true;
  ++demanded_;
}

void HintGate::ended(std::uint32_t slot, bool read, Time now) noexcept {
  const Flight flight = flights_[slot];
  if (flight.position == 0) return;
  flights_[slot] = {};
  --in_flight_;
  if (flight.demanded && --demanded_ == 0) quiet_since_ = now;
  if (!read) return;
  const auto taken = static_cast<double>((now - flight.since).count());
  if (flight.position == 1) {
    alone_.add(taken);
  } else if (alone_.value > 0) {
    sharing_.add(std::clamp((taken / alone_.value - 1) / (flight.position - 1), 0.0, 1.0));
  }
}

void HintGate::visit_begins(Time now) noexcept {
  // The first visit comes after no other. A pause between jobs is no gap either: of a long one only as much
  // counts as would let a read end for each slot.
  if (visited_) {
    const double most = alone_.value * static_cast<double>(flights_.size());
    const double gap =
        demanded_ > 0 ? 0.0 : std::min(static_cast<double>((now - quiet_since_).count()), most);
    if (gap_.samples > 0) gap_error_.add(std::abs(gap - gap_.value));
    gap_.add(gap);
  }
  visited_ = true;
  quiet_since_ = now;
}

void HintGate::settled(float named, bool came) noexcept {
  Outcomes& outcomes = outcomes_[range_of(named)];
  outcomes.named += 1;
  outcomes.came += came ? 1 : 0;
  if (outcomes.named < kDecayHints) return;
  outcomes.named *= 0.5F;
  outcomes.came *= 0.5F;
}

float HintGate::probability(float named) const noexcept {
  const Outcomes& outcomes = outcomes_[range_of(named)];
  return (outcomes.came + named * kPriorHints) / (outcomes.named + kPriorHints);
}

float HintGate::threshold(Time now) const noexcept {
  // One at a time at first: a drive that is always busy does not show how long a read takes alone.
  if (std::min({alone_.samples, sharing_.samples, gap_.samples}) < kFewestSamples)
    return in_flight_ == 0 ? 0.0F : kCertain;
  const double passed = demanded_ > 0 ? 0.0 : static_cast<double>((now - quiet_since_).count());
  // What is left of it; never certainly nothing where gaps differ.
  const double reads = std::max(gap_.value - passed, gap_error_.value) / std::max(alone_.value, 1.0);
  // A read goes on beside demanded ones, too, where they leave it something of the drive.
  const double beside = demanded_ > 0 ? 1 - sharing_.value : 0.0;
  // The share of the read that is over when the next visit begins, after those already under way for hints.
  const double ahead = sharing_.value * (in_flight_ - demanded_);
  const double over = std::clamp(reads + beside - ahead, 0.0, 1.0);
  // p * over = (1 - p) * (1 - over) * sharing
  const double loss = (1 - over) * sharing_.value;
  return loss > 0 ? static_cast<float>(loss / (over + loss)) : 0.0F;
}

}  // namespace colibri
