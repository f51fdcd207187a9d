// UsageCounts: how often each expert record was demanded, as shares of its layer's visits.
//
// Counts are halved when a layer has been visited often, so that they follow the job.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace colibri {

// Counts of earlier jobs, as they are kept between jobs. Empty: nothing is known.
struct UsageSnapshot {
  std::vector<float> visits;  // [layers]
  std::vector<float> uses;    // [records]; at most their layer's visits

  bool empty() const noexcept { return visits.empty(); }
};

class UsageCounts {
 public:
  // experts: of the model; records are numbered layer ordinal * experts + expert.
  UsageCounts(std::uint32_t layers, std::uint32_t experts);

  // Once per visit of a layer, then for each expert that it demands.
  void begin_visit(std::uint32_t layer) noexcept;
  void used(std::uint32_t record) noexcept { uses_[record] += 1.0F; }

  // Begins with the counts of earlier jobs, of the same model; they weigh as much as a few dozen visits.
  void restore(const UsageSnapshot& snapshot);
  // Writes the counts of the layers, and of the experts that are owned [experts].
  void save(std::span<const std::uint8_t> owned, UsageSnapshot& snapshot) const;

  // Decayed. Within a layer they rank records as probability does.
  float uses(std::uint32_t record) const noexcept { return uses_[record]; }
  float visits(std::uint32_t layer) const noexcept { return visits_[layer]; }
  // That the record is demanded at the next visit of its layer.
  double probability(std::uint32_t record) const noexcept {
    // One visit that saw nothing is assumed, so that a first use does not mean certainty.
    return uses_[record] / (visits_[record / experts_] + 1.0);
  }

 private:
  std::uint32_t experts_;
  std::vector<float> uses_;    // [records]
  std::vector<float> visits_;  // [layers]
};

}  // namespace colibri
