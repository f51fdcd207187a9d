// SlotTable: which expert record lies in which slot, who leases it, who may stay.
//
// Pure bookkeeping without memory or I/O, owned by `fetch`. A slot is free, being read, or
// holds a record. After its last lease ends, a record stays if it is chosen (ResidentChoice), else
// it is dropped. What was leased to a visit that is not at its end waits for that, when it is decided: the
// lease is over, so all demands of the visit are on their way here already.
// `transit` slots are never given to residents, and residents, hints and leases that were given before
// their turn together always leave one slot: demands in the order of their arrival can always make progress.
// No global LRU: over a cyclic layer order its hit rate is near zero.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "stages/resident_choice.hpp"

namespace colibri {

class SlotTable {
 public:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  enum class State : std::uint8_t { free, reading, landed };

  struct Slot {
    std::uint32_t record = kNone;  // moe ordinal * experts + expert
    State state = State::free;
    std::uint32_t leases = 0;
    bool resident = false;    // stays between visits: chosen, and its last lease over since
    bool hinted = false;      // read for a hint whose visit has not passed; not evictable
    bool used = false;        // leased at least once since it was read
    bool ahead = false;       // a lease of it was given before those of demands that came earlier
    std::uint64_t visit = 0;  // key of the visit it was read for
  };

  struct Shape {
    std::uint32_t layers = 1;   // MoE layers
    std::uint32_t experts = 1;  // of the model; they number the records
    std::uint32_t owned = 1;    // those of each layer that may come here
    std::uint32_t slots = 1;    // >= transit
    std::uint32_t transit = 1;  // >= 1, or 0 when every record that may come has a slot
    std::uint32_t steps = 1;    // whose visits may be open at a time
    ResidentPolicy policy = ResidentPolicy::probability;
  };
  explicit SlotTable(const Shape& shape);

  std::uint32_t record_of(std::uint32_t layer_ordinal, std::uint32_t expert) const noexcept {
    return layer_ordinal * experts_ + expert;
  }
  std::uint32_t layer_of(std::uint32_t record) const noexcept { return record / experts_; }
  // The slot that holds or reads the record, or kNone. O(1).
  std::uint32_t find(std::uint32_t record) const noexcept { return slot_of_[record]; }
  const Slot& slot(std::uint32_t index) const noexcept { return slots_[index]; }
  std::uint32_t free_slots() const noexcept { return static_cast<std::uint32_t>(free_.size()); }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }
  std::uint32_t residents() const noexcept { return residents_; }
  std::uint32_t hinted_slots() const noexcept { return hinted_; }

  // Before the first visit; see ResidentChoice.
  void restore(const UsageSnapshot& snapshot, std::span<const std::uint8_t> owned, bool choose) {
    choice_.restore(snapshot, owned, choose);
  }

  // Takes a free slot for a read of `record`; kNone when none is free.
  std::uint32_t begin_read(std::uint32_t record, std::uint64_t visit, bool hinted);
  void landed(std::uint32_t slot) noexcept { slots_[slot].state = State::landed; }
  // A failed read: the slot is free again and the record absent.
  void failed(std::uint32_t slot);
  // Leases the slot to a visit. A record read for a hint of another visit stays for that one all the same:
  // it would be read twice for it otherwise.
  // ahead: earlier demands still wait for slots, see may_lease_ahead.
  void lease(std::uint32_t slot, std::uint64_t visit, bool ahead = false) noexcept {
    ++slots_[slot].leases;
    slots_[slot].used = true;
    if (ahead && !slots_[slot].ahead) {
      slots_[slot].ahead = true;
      ahead_only_ += is_kept_otherwise(slots_[slot]) ? 0 : 1;
    }
    if (slots_[slot].visit == visit) clear_hint(slot);
    for (OpenVisit& open : open_) {
      if (open.key != visit) continue;
      open.leased.push_back(slots_[slot].record);
      ++undecided_[slots_[slot].record];
    }
  }
  // Whether a demand may lease the slot while earlier ones wait. Such a lease may last until those are
  // served and computed, here or by another fetch: it must not take the slot that they are served from.
  bool may_lease_ahead(std::uint32_t slot) const noexcept {
    return slots_[slot].ahead || is_kept_otherwise(slots_[slot]) || kept() + 1 < slots_.size();
  }
  // Ends one lease; after the last one the record stays or goes, as explained above.
  void release(std::uint32_t slot);
  // The visit that a hint was for has passed without a demand: the record stays or goes.
  void hint_passed(std::uint32_t slot);

  // A visit of a layer by a step, which has one open at a time; its demands, each before its lease; its
  // end, which decides what stays.
  void begin_visit(std::uint32_t step, std::uint32_t layer_ordinal, std::uint64_t visit) {
    if (choice_.is_open(step)) end_visit(step);
    choice_.begin_visit(step, layer_ordinal);
    open_[step].key = visit;
  }
  void demanded(std::uint32_t step, std::uint32_t record) { choice_.demanded(step, record); }
  void end_visit(std::uint32_t step);
  // Leased to a visit that is not at its end.
  bool undecided(std::uint32_t slot) const noexcept { return undecided_[slots_[slot].record] > 0; }
  const ResidentChoice& choice() const noexcept { return choice_; }

 private:
  struct OpenVisit {
    std::uint64_t key = 0;  // 0: none
    std::vector<std::uint32_t> leased;
  };

  static bool is_kept_otherwise(const Slot& slot) noexcept { return slot.resident || slot.hinted; }
  // Slots that demands in their turn cannot count on.
  std::uint32_t kept() const noexcept { return residents_ + hinted_ + ahead_only_; }
  void clear_hint(std::uint32_t slot) noexcept {
    if (!slots_[slot].hinted) return;
    --hinted_;
    slots_[slot].hinted = false;
    ahead_only_ += slots_[slot].ahead ? 1 : 0;
  }
  void clear_ahead(std::uint32_t slot) noexcept {
    if (!slots_[slot].ahead) return;
    slots_[slot].ahead = false;
    ahead_only_ -= is_kept_otherwise(slots_[slot]) ? 0 : 1;
  }
  void clear_resident(std::uint32_t slot) noexcept {
    if (!slots_[slot].resident) return;
    --residents_;
    slots_[slot].resident = false;
    ahead_only_ += slots_[slot].ahead ? 1 : 0;
  }
  // Nobody needs the slot: its record stays or goes, or waits for a visit to end.
  void settle(std::uint32_t slot);
  void let_go_of_dropped();
  void free_slot(std::uint32_t slot);
  bool is_idle(std::uint32_t slot) const noexcept {
    return slots_[slot].state == State::landed && slots_[slot].leases == 0 && !slots_[slot].hinted;
  }

  std::uint32_t experts_;
  ResidentChoice choice_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> slot_of_;    // [records]
  std::vector<std::uint16_t> undecided_;  // [records] open visits that it was leased to
  std::vector<OpenVisit> open_;           // [steps]
  std::uint32_t residents_ = 0;
  std::uint32_t hinted_ = 0;
  std::uint32_t ahead_only_ = 0;  // slots leased ahead that are neither resident nor hinted
  bool keeps_one_ = true;         // one slot is for demands only
};

// What slots are kept free of residents for.
struct TransitNeed {
  std::uint64_t in_flight = 1;       // slots that hold the bytes in flight
  std::uint64_t between_layers = 0;  // and those that the drive can fill while computing gives none back
};
// How many of `slots` are kept free of residents: three tenths, within what keeps reads and arithmetic busy, and
// at least what is read between two layers; but half of them at most. 0 when each of the records has a slot.
std::uint32_t transit_slots(std::uint64_t slots, std::uint64_t records, const TransitNeed& need) noexcept;

}  // namespace colibri
