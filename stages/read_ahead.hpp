// ReadAhead: which of the records that hints name are read before anybody demands them, and in what order.
//
// The nearest visit first, in it the likeliest; none that HintGate says is not worth its time. In sweeps,
// where nearly all experts come sooner or later, time is not all that counts: there, what is read for
// nothing stays within a small share of all reads. A hint may spend only a part of what is left of that, so
// that likely ones find some, and those that are all but certain are read whatever is left.
#pragma once

#include <colibri/messages.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stages/hint_gate.hpp"
#include "stages/hint_list.hpp"
#include "stages/slot_table.hpp"
#include "stages/visit_progress.hpp"

namespace colibri {

class ReadAhead {
 public:
  explicit ReadAhead(std::size_t records = 0, std::uint32_t slots = 0);

  // What is known of the drive, and of how true probabilities are.
  HintGate& gate() noexcept { return gate_; }

  // Takes what is said of the visit `key` of a layer, about experts that are owned [experts].
  void take(const HintTarget& target, std::uint32_t ordinal, std::uint64_t key,
            std::span<const std::uint8_t> owned, const SlotTable& table, const VisitProgress& visits);
  void forget_all() noexcept;
  // Forgets hints for visits whose demands have all arrived.
  void forget_passed(const VisitProgress& visits);

  // The hint that a read should begin for now, if any; it is in the list no more.
  std::optional<Hint> next(const SlotTable& table, const VisitProgress& visits, HintGate::Time now);
  // The read has begun, into this slot.
  void begin(std::uint32_t slot, const Hint& hint) noexcept;
  // The record was leased, to the visit that it was read for or to another one.
  void leased(std::uint32_t slot, bool by_its_visit) noexcept;
  // The visit has passed without a demand.
  void passed(std::uint32_t slot) noexcept;
  // A record was read, for whatever reason; and one that was read ahead goes without ever having been leased.
  void read() noexcept { ++reads_; }
  void wasted(std::uint32_t slot) noexcept;

 private:
  // Of the record that was read into a slot.
  struct Read {
    float named = 0;  // probability that the hint carried
    float doubt = 0;  // that it is never demanded, until that is known
    bool sweep = false;
  };
  // The probability from which on a hint in a sweep may be read.
  float least_in_sweeps() const noexcept;

  HintList hints_;  // not yet read
  HintGate gate_;
  std::vector<Read> read_;    // [slots]
  std::uint64_t reads_ = 0;   // all
  std::uint64_t wasted_ = 0;  // in sweeps
  double doubt_ = 0;          // sum over the slots
};

}  // namespace colibri
