#include "stages/slot_table.hpp"

#include <algorithm>
#include <cassert>

namespace colibri {
namespace {

// Measured in virtual time, over drives, memory and rows of steps. With fewer the drive waits while experts
// are computed, even when one record keeps it busy; more hide nothing more of that, and each takes a
// resident's place. Of 48 slots, with steps of 128 rows and reading as long as computing, a quarter makes a
// job 2 % longer than three tenths do; on drives ten times slower it makes it 2 % shorter.
constexpr std::uint64_t kFewestTransit = 4, kUsualTransit = 8, kMostInFlight = 16;

}  // namespace

SlotTable::SlotTable(const Shape& shape)
    : experts_(shape.experts),
      choice_(shape.layers, shape.experts, shape.owned, shape.slots - shape.transit, shape.steps,
              shape.policy),
      slots_(shape.slots),
      slot_of_(std::size_t{shape.layers} * shape.experts, kNone),
      undecided_(slot_of_.size()),
      open_(shape.steps),
      keeps_one_(shape.transit > 0) {
  assert(shape.owned <= shape.experts && shape.slots >= shape.transit && shape.layers >= 1);
  assert(shape.transit >= 1 || shape.slots >= shape.layers * shape.owned);
  for (OpenVisit& open : open_) open.leased.reserve(shape.owned);
  free_.reserve(shape.slots);
  for (std::uint32_t slot = shape.slots; slot-- > 0;) free_.push_back(slot);
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
  // The visits that it was leased to may have more demands: it must not wait for their end.
  for (OpenVisit& open : open_) std::erase(open.leased, slots_[slot].record);
  undecided_[slots_[slot].record] = 0;
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
  if (!is_idle(slot)) return;
  const std::uint32_t record = slots_[slot].record;
  if (!undecided(slot)) {
    choice_.offer(record);
    let_go_of_dropped();
  }
  settle(slot);
}

void SlotTable::end_visit(std::uint32_t step) {
  choice_.end_visit(step);
  OpenVisit& visit = open_[step];
  for (const std::uint32_t record : visit.leased) --undecided_[record];
  let_go_of_dropped();
  for (const std::uint32_t record : visit.leased) {
    if (const std::uint32_t slot = find(record); slot != kNone && is_idle(slot)) settle(slot);
  }
  visit.key = 0;
  visit.leased.clear();
}

// Leases of what is not chosen any more go on; the slot is free after the last one.
void SlotTable::let_go_of_dropped() {
  for (const std::uint32_t record : choice_.dropped()) {
    const std::uint32_t slot = find(record);
    if (slot == kNone) continue;
    clear_resident(slot);
    if (is_idle(slot)) settle(slot);
  }
}

void SlotTable::settle(std::uint32_t index) {
  Slot& slot = slots_[index];
  if (slot.resident || slot.hinted || undecided(index)) return;
  // Hints may hold the slots for transit until their visit has passed, and leases given ahead until earlier
  // demands are served: then a demand of an earlier visit would wait for ever if this record stayed as well.
  if (!choice_.chosen(slot.record) || (keeps_one_ && kept() + 1 >= slots_.size())) {
    free_slot(index);
    return;
  }
  slot.resident = true;
  ++residents_;
}

void SlotTable::free_slot(std::uint32_t index) {
  clear_hint(index);
  clear_resident(index);
  clear_ahead(index);
  Slot& slot = slots_[index];
  choice_.forget(slot.record);
  slot_of_[slot.record] = kNone;
  slot = Slot{};
  free_.push_back(index);
}

std::uint32_t transit_slots(std::uint64_t slots, std::uint64_t records, const TransitNeed& need) noexcept {
  if (slots >= records) return 0;
  const std::uint64_t most = std::clamp(need.in_flight, kFewestTransit, kMostInFlight);
  const std::uint64_t usual = std::clamp(slots * 3 / 10, std::min(kUsualTransit, most), most);
  // Slots that bridge a gap in every layer are worth more than a resident each.
  const std::uint64_t wanted = std::max(usual, need.between_layers);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(slots / 2, 1, wanted));
}

}  // namespace colibri
