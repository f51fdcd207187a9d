// ResidentChoice: which records of each layer are kept in slots between visits.
//
// Decided once a visit, when all of its demands are known, from those demands and earlier ones
// alone: never from the order in which reads end or leases come back. So `colibri replay`, which
// drives the same code, says exactly what a job hits. A record that is demanded and not chosen
// is used once and dropped: bypass.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "stages/layer_quotas.hpp"
#include "stages/usage_counts.hpp"

namespace colibri {

enum class ResidentPolicy : std::uint8_t {
  probability,  // the likeliest to be demanded at the layer's next visit; layers win and lose places
  pinned,       // the same in the first visits of a layer; what is chosen then stays to the end
};
std::optional<ResidentPolicy> find_resident_policy(std::string_view name) noexcept;

class ResidentChoice {
 public:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  // The visits of a layer in which `pinned` still changes its mind.
  static constexpr std::uint32_t kPinningVisits = 8;

  // owned: experts of each layer that may be chosen. places: records that may be chosen over all layers.
  // steps: visits that may be open at a time.
  ResidentChoice(std::uint32_t layers, std::uint32_t experts, std::uint32_t owned, std::uint32_t places,
                 std::uint32_t steps, ResidentPolicy policy);

  // Before the first visit: begins with the counts of earlier jobs. With `choose` their likeliest records are
  // chosen, of the experts that are owned [experts]; `pinned` keeps to these.
  void restore(const UsageSnapshot& snapshot, std::span<const std::uint8_t> owned, bool choose);
  // What is chosen, likeliest first.
  std::vector<std::uint32_t> ranking() const;

  // A visit of a layer by a step, which has one open at a time, and what it demands.
  void begin_visit(std::uint32_t step, std::uint32_t layer);
  void demanded(std::uint32_t step, std::uint32_t record);
  bool is_open(std::uint32_t step) const noexcept { return visits_[step].open; }
  // All demands of the step's visit are known: chooses.
  void end_visit(std::uint32_t step);
  // A record that was read for nothing: chosen if there is place for it, or it is likelier than another.
  void offer(std::uint32_t record);
  // The record could not be kept after all.
  void forget(std::uint32_t record);
  // What was chosen once and is not any more, since the last call of end_visit or offer.
  std::span<const std::uint32_t> dropped() const noexcept { return dropped_; }

  bool chosen(std::uint32_t record) const noexcept { return chosen_[record] != 0; }
  std::uint32_t quota(std::uint32_t layer) const noexcept { return quotas_[layer]; }
  const UsageCounts& usage() const noexcept { return usage_; }

 private:
  struct OpenVisit {
    bool open = false;
    std::uint32_t layer = 0;
    std::vector<std::uint32_t> records;  // demanded so far
  };

  // True when the record is chosen now; false: neither it nor any less likely one.
  bool choose_record(std::uint32_t record);
  bool may_replace(std::uint32_t layer) const noexcept;
  void remove(std::uint32_t record) noexcept;
  // The last record kept and the first one not kept of a layer; kNone when it has places to spare.
  struct Edge {
    std::uint32_t last = kNone, ghost = kNone;
  };
  Edge edge_of(std::uint32_t layer) const noexcept;
  std::uint32_t worst_of(std::uint32_t layer) const noexcept;
  void move_quotas(const OpenVisit& visit);
  // Likelier to be demanded; equal ones by number, so that there is one order.
  bool before(std::uint32_t a, std::uint32_t b) const noexcept {
    return usage_.uses(a) != usage_.uses(b) ? usage_.uses(a) > usage_.uses(b) : a < b;
  }

  std::uint32_t experts_;
  ResidentPolicy policy_;
  UsageCounts usage_;
  std::vector<std::uint32_t> seen_visits_;  // [layers] up to kPinningVisits
  LayerQuotas quotas_;
  std::vector<Edge> edges_;                       // [layers] after its last visit
  std::vector<std::vector<std::uint32_t>> kept_;  // [layers] the chosen records
  std::vector<std::uint8_t> chosen_;              // [records]
  std::vector<OpenVisit> visits_;                 // [steps]
  std::vector<std::uint32_t> candidates_, dropped_;
};

}  // namespace colibri
