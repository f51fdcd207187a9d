#include "stages/slot_table.hpp"

#include <algorithm>
#include <cassert>

namespace colibri {
namespace {

// Counts are halved when a layer reaches this many visits, so that usage follows the job.
constexpr float kDecayVisits = 256.0F;
// A record must be likelier than a resident by this factor to take its place: equal records never swap.
constexpr double kReplaceFactor = 1.05;

}  // namespace

SlotTable::SlotTable(std::uint32_t layers, std::uint32_t experts, std::uint32_t owned, std::uint32_t slots,
                     std::uint32_t transit)
    : experts_(experts),
      slots_(slots),
      slot_of_(std::size_t{layers} * experts, kNone),
      quota_(layers),
      resident_slots_(layers),
      uses_(std::size_t{layers} * experts),
      visits_(layers) {
  assert(owned <= experts && slots >= transit && layers >= 1 && (transit >= 1 || slots >= layers * owned));
  free_.reserve(slots);
  for (std::uint32_t slot = slots; slot-- > 0;) free_.push_back(slot);
  const std::uint32_t for_residents = slots - transit;
  keeps_one_ = transit > 0;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    quota_[layer] = std::min(owned, for_residents / layers + (layer < for_residents % layers ? 1 : 0));
    resident_slots_[layer].reserve(quota_[layer] + 1);
  }
}

std::uint32_t SlotTable::begin_read(std::uint32_t record, std::uint64_t visit, bool hinted) {
  if (free_.empty()) return kNone;
  const std::uint32_t index = free_.back();
  free_.pop_back();
  slots_[index] = {.record = record, .state = State::reading, .hinted = hinted, .visit = visit};
  slot_of_[record] = index;
  hinted_ += hinted ? 1 : 0;
  return index;
}

void SlotTable::failed(std::uint32_t slot) {
  assert(slots_[slot].state == State::reading);
  free_slot(slot);
}

void SlotTable::release(std::uint32_t slot) {
  assert(slots_[slot].leases > 0);
  if (--slots_[slot].leases > 0) return;
  clear_ahead(slot);
  settle(slot);
}

void SlotTable::hint_passed(std::uint32_t slot) {
  clear_hint(slot);
  if (slots_[slot].state == State::landed && slots_[slot].leases == 0) settle(slot);
}

void SlotTable::settle(std::uint32_t index) {
  Slot& slot = slots_[index];
  if (slot.resident || slot.hinted) return;
  const std::uint32_t layer = layer_of(slot.record);
  std::vector<std::uint32_t>& residents = resident_slots_[layer];
  if (residents.size() >= quota_[layer]) {
    const std::uint32_t worst = worst_resident(layer);
    if (worst == kNone || probability(slot.record) <= kReplaceFactor * probability(slots_[worst].record)) {
      free_slot(index);  // bypass
      return;
    }
    free_slot(worst);
  } else if (keeps_one_ && kept() + 1 >= slots_.size()) {
    // Hints may hold the slots for transit until their visit has passed, and leases given ahead until earlier
    // demands are served: then a demand of an earlier visit would wait for ever if this record stayed as
    // well.
    free_slot(index);
    return;
  }
  slot.resident = true;
  residents.push_back(index);
  ++residents_;
}

void SlotTable::free_slot(std::uint32_t index) {
  clear_hint(index);
  clear_ahead(index);
  Slot& slot = slots_[index];
  if (slot.resident) {
    std::erase(resident_slots_[layer_of(slot.record)], index);
    --residents_;
  }
  slot_of_[slot.record] = kNone;
  slot = Slot{};
  free_.push_back(index);
}

std::uint32_t SlotTable::worst_resident(std::uint32_t layer) const noexcept {
  std::uint32_t worst = kNone;
  for (const std::uint32_t index : resident_slots_[layer]) {
    if (slots_[index].leases > 0) continue;
    if (worst == kNone || probability(slots_[index].record) < probability(slots_[worst].record))
      worst = index;
  }
  return worst;
}

void SlotTable::begin_visit(std::uint32_t layer) {
  if (visits_[layer] >= kDecayVisits) {
    visits_[layer] *= 0.5F;
    for (std::uint32_t e = 0; e < experts_; ++e) uses_[record_of(layer, e)] *= 0.5F;
  }
  visits_[layer] += 1.0F;
}

double SlotTable::probability(std::uint32_t record) const noexcept {
  // One visit that saw nothing is assumed, so that a first use does not mean certainty.
  return uses_[record] / (visits_[layer_of(record)] + 1.0);
}

}  // namespace colibri
