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
  for (Open& open : open_) open.picked.assign(experts_, 0);
  touched_.assign(plan.spec->num_moe_layers(), 0.0F);
  rate_.assign(std::size_t{plan.spec->num_moe_layers()} * experts_, 0.0F);
}

void VisitCensus::count(const HintBatch& batch, std::uint32_t ordinal) {
  Open& open = open_[batch.step_slot];
  if (open.distinct > 0 && (open.step_serial != batch.step_serial || open.ordinal != ordinal)) close(open);
  open.step_serial = batch.step_serial;
  open.ordinal = ordinal;
  for (std::size_t pick = 0; pick < std::size_t{batch.rows} * picks_; ++pick) {
    open.distinct += open.picked[batch.picks[pick]]++ == 0 ? 1 : 0;
  }
  open.rows += batch.rows;
}

void VisitCensus::close(Open& open) {
  float* rate = rate_.data() + std::size_t{open.ordinal} * experts_;
  float& touched = touched_[open.ordinal];
  const float share = static_cast<float>(open.distinct) / static_cast<float>(experts_);
  const bool first = touched == 0;
  touched += (share - touched) * (first ? 1.0F : kNewest);
  for (std::uint32_t expert = 0; expert < experts_; ++expert) {
    const float picked = static_cast<float>(open.picked[expert]) / static_cast<float>(open.rows);
    rate[expert] += (picked - rate[expert]) * (first ? 1.0F : kNewest);
  }
  std::fill(open.picked.begin(), open.picked.end(), 0U);
  open.distinct = 0;
  open.rows = 0;
}

}  // namespace colibri
