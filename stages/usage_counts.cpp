#include "stages/usage_counts.hpp"

#include <algorithm>

namespace colibri {
namespace {

// Counts are halved when a layer reaches this many visits.
constexpr float kDecayVisits = 256.0F;

// What earlier jobs count for at most, in visits: the present job soon counts more.
constexpr float kRestoredVisits = 64.0F;

}  // namespace

UsageCounts::UsageCounts(std::uint32_t layers, std::uint32_t experts)
    : experts_(experts), uses_(std::size_t{layers} * experts), visits_(layers) {}

void UsageCounts::begin_visit(std::uint32_t layer) noexcept {
  if (visits_[layer] >= kDecayVisits) {
    visits_[layer] *= 0.5F;
    for (std::uint32_t e = 0; e < experts_; ++e) uses_[std::size_t{layer} * experts_ + e] *= 0.5F;
  }
  visits_[layer] += 1.0F;
}

void UsageCounts::restore(const UsageSnapshot& snapshot) {
  for (std::size_t layer = 0; layer < visits_.size(); ++layer) {
    const float weight = std::min(1.0F, kRestoredVisits / std::max(snapshot.visits[layer], 1.0F));
    visits_[layer] = weight * snapshot.visits[layer];
    for (std::size_t e = layer * experts_; e < (layer + 1) * experts_; ++e)
      uses_[e] = weight * snapshot.uses[e];
  }
}

void UsageCounts::save(std::span<const std::uint8_t> owned, UsageSnapshot& snapshot) const {
  snapshot.visits = visits_;
  snapshot.uses.resize(uses_.size());
  for (std::size_t record = 0; record < uses_.size(); ++record) {
    if (owned[record % experts_] != 0) snapshot.uses[record] = uses_[record];
  }
}

}  // namespace colibri
