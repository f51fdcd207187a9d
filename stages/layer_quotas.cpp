#include "stages/layer_quotas.hpp"

#include <algorithm>

namespace colibri {
namespace {

// Visits that the means look back, and that they need before a place is moved.
constexpr std::uint32_t kVisitsKept = 256;
constexpr std::uint32_t kFewestVisits = 64;
// A move must win this many hits a visit more than it loses, and by this factor: layers that are alike keep
// equal quotas.
constexpr float kLeastGain = 0.03F;
constexpr float kGainFactor = 1.25F;

}  // namespace

LayerQuotas::LayerQuotas(std::uint32_t layers, std::uint32_t owned, std::uint32_t places)
    : owned_(owned), quota_(layers), margins_(layers), until_move_(layers) {
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    quota_[layer] = std::min(owned, places / layers + (layer < places % layers ? 1 : 0));
  }
}

void LayerQuotas::measured(std::uint32_t layer, bool ghost_demanded, bool last_demanded) noexcept {
  Margin& margin = margins_[layer];
  margin.visits = std::min(margin.visits + 1, kVisitsKept);
  const auto weight = 1.0F / static_cast<float>(margin.visits);
  margin.won += ((ghost_demanded ? 1.0F : 0.0F) - margin.won) * weight;
  margin.lost += ((last_demanded ? 1.0F : 0.0F) - margin.lost) * weight;
  until_move_ -= until_move_ > 0 ? 1 : 0;
}

std::optional<LayerQuotas::Move> LayerQuotas::move() noexcept {
  if (until_move_ > 0) return {};
  until_move_ = static_cast<std::uint32_t>(quota_.size());
  std::optional<std::uint32_t> from, to;
  for (std::uint32_t layer = 0; layer < quota_.size(); ++layer) {
    if (margins_[layer].visits < kFewestVisits) continue;
    if (quota_[layer] > 0 && (!from || margins_[layer].lost < margins_[*from].lost)) from = layer;
    if (quota_[layer] < owned_ && (!to || margins_[layer].won > margins_[*to].won)) to = layer;
  }
  if (!from || !to || *from == *to) return {};
  const float won = margins_[*to].won, lost = margins_[*from].lost;
  if (won < lost + kLeastGain || won < lost * kGainFactor) return {};
  --quota_[*from];
  ++quota_[*to];
  // What was measured was about other records.
  for (const std::uint32_t layer : {*from, *to}) margins_[layer].visits = kFewestVisits / 2;
  return Move{*from, *to};
}

}  // namespace colibri
