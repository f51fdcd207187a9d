#include "stages/resident_choice.hpp"

#include <algorithm>
#include <cassert>

namespace colibri {
namespace {

// A record must be likelier than a chosen one by this factor to take its place: equal records never swap.
constexpr double kReplaceFactor = 1.05;

}  // namespace

std::optional<ResidentPolicy> find_resident_policy(std::string_view name) noexcept {
  if (name == "probability") return ResidentPolicy::probability;
  if (name == "pinned") return ResidentPolicy::pinned;
  return std::nullopt;
}

ResidentChoice::ResidentChoice(std::uint32_t layers, std::uint32_t experts, std::uint32_t owned,
                               std::uint32_t places, std::uint32_t steps, ResidentPolicy policy)
    : experts_(experts),
      policy_(policy),
      usage_(layers, experts),
      seen_visits_(layers),
      quotas_(layers, owned, places),
      edges_(layers),
      kept_(layers),
      chosen_(std::size_t{layers} * experts),
      visits_(steps) {
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    kept_[layer].reserve(owned);
  }
  for (OpenVisit& visit : visits_) visit.records.reserve(owned);
  candidates_.reserve(owned);
  dropped_.reserve(owned);
}

void ResidentChoice::restore(const UsageSnapshot& snapshot, std::span<const std::uint8_t> owned,
                             bool choose) {
  usage_.restore(snapshot);
  for (std::uint32_t layer = 0; choose && layer < kept_.size(); ++layer) {
    candidates_.clear();
    for (std::uint32_t expert = 0; expert < experts_; ++expert) {
      const std::uint32_t record = layer * experts_ + expert;
      if (owned[expert] != 0 && usage_.uses(record) > 0) candidates_.push_back(record);
    }
    std::sort(candidates_.begin(), candidates_.end(),
              [this](std::uint32_t a, std::uint32_t b) { return before(a, b); });
    candidates_.resize(std::min<std::size_t>(candidates_.size(), quotas_[layer]));
    for (const std::uint32_t record : candidates_) choose_record(record);
    if (!candidates_.empty()) seen_visits_[layer] = kPinningVisits;
  }
}

std::vector<std::uint32_t> ResidentChoice::ranking() const {
  std::vector<std::uint32_t> all;
  for (const std::vector<std::uint32_t>& kept : kept_) all.insert(all.end(), kept.begin(), kept.end());
  std::sort(all.begin(), all.end(), [this](std::uint32_t a, std::uint32_t b) {
    const double of_a = usage_.probability(a), of_b = usage_.probability(b);
    return of_a != of_b ? of_a > of_b : a < b;
  });
  return all;
}

void ResidentChoice::begin_visit(std::uint32_t step, std::uint32_t layer) {
  assert(!visits_[step].open);
  visits_[step].open = true;
  visits_[step].layer = layer;
  visits_[step].records.clear();
  usage_.begin_visit(layer);
}

void ResidentChoice::demanded(std::uint32_t step, std::uint32_t record) {
  assert(visits_[step].open && record / experts_ == visits_[step].layer);
  visits_[step].records.push_back(record);
  usage_.used(record);
}

void ResidentChoice::end_visit(std::uint32_t step) {
  OpenVisit& visit = visits_[step];
  visit.open = false;
  dropped_.clear();
  candidates_.clear();
  for (const std::uint32_t record : visit.records) {
    if (!chosen(record)) candidates_.push_back(record);
  }
  std::sort(candidates_.begin(), candidates_.end(),
            [this](std::uint32_t a, std::uint32_t b) { return before(a, b); });
  for (const std::uint32_t record : candidates_) {
    if (!choose_record(record)) break;
  }
  if (policy_ == ResidentPolicy::probability) move_quotas(visit);
  std::uint32_t& seen = seen_visits_[visit.layer];
  seen = std::min(seen + 1, kPinningVisits);
}

void ResidentChoice::offer(std::uint32_t record) {
  dropped_.clear();
  if (!chosen(record)) choose_record(record);
}

bool ResidentChoice::choose_record(std::uint32_t record) {
  const std::uint32_t layer = record / experts_;
  std::vector<std::uint32_t>& kept = kept_[layer];
  if (kept.size() >= quotas_[layer]) {
    if (kept.empty() || !may_replace(layer)) return false;
    const std::uint32_t worst = worst_of(layer);
    if (usage_.uses(record) <= kReplaceFactor * usage_.uses(worst)) return false;
    remove(worst);
    dropped_.push_back(worst);
  }
  kept.push_back(record);
  chosen_[record] = 1;
  return true;
}

bool ResidentChoice::may_replace(std::uint32_t layer) const noexcept {
  return policy_ == ResidentPolicy::probability || seen_visits_[layer] < kPinningVisits;
}

std::uint32_t ResidentChoice::worst_of(std::uint32_t layer) const noexcept {
  return *std::max_element(kept_[layer].begin(), kept_[layer].end(),
                           [this](std::uint32_t a, std::uint32_t b) { return before(a, b); });
}

ResidentChoice::Edge ResidentChoice::edge_of(std::uint32_t layer) const noexcept {
  Edge edge;
  if (kept_[layer].size() < quotas_[layer]) return edge;
  if (!kept_[layer].empty()) edge.last = worst_of(layer);
  for (std::uint32_t record = layer * experts_; record < (layer + 1) * experts_; ++record) {
    if (chosen(record) || usage_.uses(record) == 0) continue;
    if (edge.ghost == kNone || before(record, edge.ghost)) edge.ghost = record;
  }
  return edge;
}

void ResidentChoice::move_quotas(const OpenVisit& visit) {
  auto demanded = [&visit](std::uint32_t record) {
    return std::find(visit.records.begin(), visit.records.end(), record) != visit.records.end();
  };
  const Edge& edge = edges_[visit.layer];
  quotas_.measured(visit.layer, demanded(edge.ghost), demanded(edge.last));
  if (const auto move = quotas_.move(); move && kept_[move->from].size() > quotas_[move->from]) {
    const std::uint32_t worst = worst_of(move->from);
    remove(worst);
    dropped_.push_back(worst);
    edges_[move->from] = edge_of(move->from);
  }
  edges_[visit.layer] = edge_of(visit.layer);
}

void ResidentChoice::forget(std::uint32_t record) {
  if (chosen(record)) remove(record);
}

void ResidentChoice::remove(std::uint32_t record) noexcept {
  std::erase(kept_[record / experts_], record);
  chosen_[record] = 0;
}

}  // namespace colibri
