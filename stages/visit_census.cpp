#include "stages/visit_census.hpp"

#include <algorithm>

namespace colibri {
namespace {

// Weight of the newest visit in the running means.
constexpr float kNewest = 0.25F;

}  // namespace

void VisitCensus::reset(const PlanInputs& plan) {
  experts_ = plan.spec->num_experts;
  picks_ = plan.spec->num_experts_per_token;
  open_.assign(plan.in_flight, {});
  for (Open& open : open_) open.seen.assign(experts_, 0);
  touched_.assign(plan.spec->num_moe_layers(), 0.0F);
  frequency_.assign(std::size_t{plan.spec->num_moe_layers()} * experts_, 0.0F);
}

void VisitCensus::count(const HintBatch& batch, std::uint32_t ordinal) {
  Open& open = open_[batch.step_slot];
  if (open.distinct > 0 && (open.step_serial != batch.step_serial || open.ordinal != ordinal)) close(open);
  open.step_serial = batch.step_serial;
  open.ordinal = ordinal;
  for (std::size_t pick = 0; pick < std::size_t{batch.rows} * picks_; ++pick) {
    std::uint8_t& seen = open.seen[batch.picks[pick]];
    open.distinct += seen == 0 ? 1 : 0;
    seen = 1;
  }
}

void VisitCensus::close(Open& open) {
  float* frequency = frequency_.data() + std::size_t{open.ordinal} * experts_;
  float& touched = touched_[open.ordinal];
  const float share = static_cast<float>(open.distinct) / static_cast<float>(experts_);
  const bool first = touched == 0;
  touched += (share - touched) * (first ? 1.0F : kNewest);
  for (std::uint32_t expert = 0; expert < experts_; ++expert) {
    frequency[expert] +=
        (static_cast<float>(open.seen[expert]) - frequency[expert]) * (first ? 1.0F : kNewest);
  }
  std::fill(open.seen.begin(), open.seen.end(), std::uint8_t{0});
  open.distinct = 0;
}

}  // namespace colibri
