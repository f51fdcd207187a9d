#include "stages/usage_counts.hpp"

namespace colibri {
namespace {

// Counts are halved when a layer reaches this many visits.
constexpr float kDecayVisits = 256.0F;

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

}  // namespace colibri
