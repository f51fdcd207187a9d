// VisitProgress: which visits `fetch` has heard of, and what they demanded.
//
// Visits are named by keys that exist before the visits do, so that hints can be counted for
// them. Every fetch of a pipeline is told of each visit's first and last wave, also when it has
// none of the experts: so a step shows with its first wave, in the order of the steps, and a
// visit is over for hints as soon as its last wave is routed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace colibri {

class VisitProgress {
 public:
  VisitProgress() = default;
  // moe_layers, records: of the model. steps: that are in flight.
  VisitProgress(std::size_t steps, std::size_t moe_layers, std::size_t records)
      : stride_(moe_layers + 1),
        begun_(steps),
        complete_(steps),
        demanded_(steps, std::vector<std::uint64_t>(records)) {}

  // Ascending in time within a step, and from step to step. Never 0.
  std::uint64_t key_of(std::uint64_t step_serial, std::uint32_t layer_ordinal) const noexcept {
    return first_key(step_serial) + 1 + layer_ordinal;
  }

  // Notes a demand of the visit. True for the first one.
  bool begin(std::uint32_t step_slot, std::uint64_t key) noexcept {
    // What then is older than every step shown is over.
    complete_[step_slot] = std::max(complete_[step_slot], key / stride_ * stride_);
    const bool first = begun_[step_slot] != key;
    begun_[step_slot] = key;
    return first;
  }
  void demanded(std::uint32_t step_slot, std::uint32_t record, std::uint64_t key) noexcept {
    demanded_[step_slot][record] = key;
  }
  // All demands of the visit have arrived.
  void complete(std::uint32_t step_slot, std::uint64_t key) noexcept { complete_[step_slot] = key; }

  // True when all demands of the visit have arrived already.
  bool over(std::uint64_t key) const noexcept {
    const std::uint64_t step = key / stride_;
    bool newer_step = false;
    for (const std::uint64_t complete : complete_) {
      if (complete / stride_ == step) return key <= complete;
      newer_step |= complete / stride_ > step;
    }
    return newer_step;
  }
  // True when the visit has demanded the record: it is being served, or was.
  bool demanded_by(std::uint32_t record, std::uint64_t key) const noexcept {
    return std::any_of(demanded_.begin(), demanded_.end(),
                       [record, key](const std::vector<std::uint64_t>& keys) { return keys[record] == key; });
  }

 private:
  // Before all visits of the step.
  std::uint64_t first_key(std::uint64_t step_serial) const noexcept { return (step_serial + 1) * stride_; }

  std::uint64_t stride_ = 1;                          // keys of a step
  std::vector<std::uint64_t> begun_;                  // [steps] visit of the last demand
  std::vector<std::uint64_t> complete_;               // [steps] last visit whose demands have all arrived
  std::vector<std::vector<std::uint64_t>> demanded_;  // [steps][records] visit that demanded it last
};

}  // namespace colibri
