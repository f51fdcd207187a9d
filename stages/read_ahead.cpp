#include "stages/read_ahead.hpp"

#include <algorithm>
#include <utility>

namespace colibri {
namespace {

// Of the records read, those that a sweep may read for nothing. A fixed set of residents that is learned, not
// known from the beginning, costs most of another percent.
constexpr double kWasteShare = 0.0075;
// Of what is left of them, what one hint may spend. Measured in virtual time: with a tenth, poor hints leave
// nothing to good ones.
constexpr double kSpentAtOnce = 0.02;
// As likely as this is read also where nothing is left.
constexpr double kAllButCertain = 0.999;

}  // namespace

ReadAhead::ReadAhead(std::size_t records, std::uint32_t slots)
    : hints_(records), gate_(slots), read_(slots) {}

void ReadAhead::take(const HintTarget& target, std::uint32_t ordinal, std::uint64_t key,
                     std::span<const std::uint8_t> owned, const SlotTable& table,
                     const VisitProgress& visits) {
  if (visits.over(key)) return;
  if (target.sweep) hints_.drop([key](const Hint& hint) { return hint.key == key; });
  for (std::uint32_t i = 0; i < target.expert_count; ++i) {
    if (owned[target.experts[i]] == 0) continue;  // another fetch's, to which the batch goes next
    const Hint hint{.record = table.record_of(ordinal, target.experts[i]),
                    .probability = target.probabilities[i],
                    .key = key,
                    .sweep = target.sweep};
    // A read for a hint whose own visit has demanded the record would be the second one for this visit.
    if (table.find(hint.record) == SlotTable::kNone && !visits.demanded_by(hint.record, key))
      hints_.add(hint);
  }
}

void ReadAhead::forget_all() noexcept {
  hints_.drop([](const Hint&) { return true; });
}

void ReadAhead::forget_passed(const VisitProgress& visits) {
  hints_.drop([&](const Hint& hint) {
    if (!visits.over(hint.key)) return false;
    gate_.settled(hint.probability, visits.demanded_by(hint.record, hint.key));
    return true;
  });
}

std::optional<Hint> ReadAhead::next(const SlotTable& table, const VisitProgress& visits, HintGate::Time now) {
  while (!hints_.empty()) {
    const float threshold = gate_.threshold(now);
    const float in_sweeps = std::max(threshold, least_in_sweeps());
    const Hint* likely = hints_.first([&](const Hint& hint) {
      return gate_.probability(hint.probability) >= (hint.sweep ? in_sweeps : threshold);
    });
    if (likely == nullptr) return {};
    const Hint hint = hints_.take(likely);
    const bool came = visits.demanded_by(hint.record, hint.key);
    if (came) gate_.settled(hint.probability, true);
    if (!came && table.find(hint.record) == SlotTable::kNone) return hint;
  }
  return {};
}

void ReadAhead::begin(std::uint32_t slot, const Hint& hint) noexcept {
  Read& read = read_[slot];
  doubt_ -= read.doubt;  // of a read that failed: nobody told of its end
  read = {.named = hint.probability, .sweep = hint.sweep};
  if (hint.sweep) read.doubt = 1 - gate_.probability(hint.probability);
  doubt_ += read.doubt;
}

void ReadAhead::leased(std::uint32_t slot, bool by_its_visit) noexcept {
  doubt_ -= std::exchange(read_[slot].doubt, 0.0F);
  if (by_its_visit) gate_.settled(read_[slot].named, true);
}

void ReadAhead::passed(std::uint32_t slot) noexcept {
  doubt_ -= std::exchange(read_[slot].doubt, 0.0F);
  gate_.settled(read_[slot].named, false);
}

void ReadAhead::wasted(std::uint32_t slot) noexcept { wasted_ += read_[slot].sweep ? 1 : 0; }

float ReadAhead::least_in_sweeps() const noexcept {
  const auto wasted = static_cast<double>(wasted_);
  const double left = kWasteShare * (static_cast<double>(reads_) - wasted) - wasted - doubt_;
  return static_cast<float>(std::clamp(1 - kSpentAtOnce * left, 0.0, kAllButCertain));
}

}  // namespace colibri
