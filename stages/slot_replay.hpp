// Replays the demands of a routing trace against policies of keeping records in slots.
//
// Says what a policy would have hit, without a model and without reads. `probability` and `pinned`
// are the SlotTable that `fetch` uses, and say what one fetch hits that has one step in flight and no
// hints; belady_bypass knows the future and is the bound of all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace colibri {

// One (step, MoE layer): the records that it demands, in the order of demand.
struct ReplayVisit {
  std::uint32_t layer = 0;  // ordinal among MoE layers
  std::vector<std::uint32_t> experts;
};

enum class SlotPolicy : std::uint8_t {
  lru,            // one list over all layers: evicts what was used longest ago
  lfu,            // one list over all layers: evicts what was used least often so far
  pinned,         // of `fetch`: what the first visits choose stays
  probability,    // of `fetch`: a quota for each layer, ranked by use per visit, with bypass
  fixed,          // the best fixed set of all layers, known beforehand; each of it is read once
  belady_bypass,  // evicts what is used again latest, or does not keep the new one (Belady 1966)
};
inline constexpr SlotPolicy kSlotPolicies[] = {SlotPolicy::lru,    SlotPolicy::lfu,
                                               SlotPolicy::pinned, SlotPolicy::probability,
                                               SlotPolicy::fixed,  SlotPolicy::belady_bypass};
std::string_view slot_policy_name(SlotPolicy policy) noexcept;
std::optional<SlotPolicy> find_slot_policy(std::string_view name) noexcept;

struct ReplayResult {
  std::uint64_t demands = 0;
  std::uint64_t hits = 0;
  double hit_rate() const noexcept {
    return demands == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(demands);
  }
};

struct ReplayShape {
  std::uint32_t layers = 1;  // bounds what visits name, as experts do
  std::uint32_t experts = 1;
  std::uint32_t slots = 1;
  std::uint32_t transit = 1;  // of the slots that the policies of `fetch` keep free of residents; the others
                              // use all slots: they would otherwise be no bound
};

// Visits in order of time. Slots start empty.
ReplayResult replay_slots(std::span<const ReplayVisit> visits, const ReplayShape& shape, SlotPolicy policy);

}  // namespace colibri
