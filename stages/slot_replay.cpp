#include "stages/slot_replay.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "stages/slot_table.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

// Records kept in order of a rank; the one of lowest rank goes first. The rank of a record may only change
// while it is not kept, or through `set`.
class RankedCache {
 public:
  RankedCache(std::size_t records, std::uint32_t slots)
      : slots_(slots), rank_(records), kept_(records, false) {}

  bool keeps(std::uint32_t record) const { return kept_[record]; }
  bool full() const { return order_.size() == slots_; }
  std::pair<std::uint64_t, std::uint64_t> lowest() const { return order_.begin()->first; }
  void evict_lowest() { drop(order_.begin()->second); }
  void set(std::uint32_t record, std::pair<std::uint64_t, std::uint64_t> rank) {
    if (kept_[record]) drop(record);
    rank_[record] = rank;
    kept_[record] = true;
    order_.emplace(rank, record);
  }

 private:
  void drop(std::uint32_t record) {
    order_.erase({rank_[record], record});
    kept_[record] = false;
  }

  std::size_t slots_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> rank_;
  std::vector<bool> kept_;
  std::set<std::pair<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t>> order_;
};

// The demands of all visits one after the other, as record numbers.
std::vector<std::uint32_t> demands_of(std::span<const ReplayVisit> visits, std::uint32_t experts) {
  std::vector<std::uint32_t> demands;
  for (const ReplayVisit& visit : visits) {
    for (const std::uint32_t expert : visit.experts) demands.push_back(visit.layer * experts + expert);
  }
  return demands;
}

// Rank: last use (lru), or number of uses, then last use (lfu).
ReplayResult replay_recency(std::span<const std::uint32_t> demands, std::size_t records, std::uint32_t slots,
                            bool frequency) {
  RankedCache cache(records, slots);
  std::vector<std::uint64_t> uses(records);
  ReplayResult result{.demands = demands.size()};
  for (std::uint64_t now = 0; now < demands.size(); ++now) {
    const std::uint32_t record = demands[now];
    ++uses[record];
    if (cache.keeps(record)) {
      ++result.hits;
    } else if (cache.full()) {
      cache.evict_lowest();
    }
    cache.set(record, {frequency ? uses[record] : 0, now});
  }
  return result;
}

// The first use of a record of the set is a read, all others are hits.
ReplayResult replay_fixed(std::span<const std::uint32_t> demands, std::size_t records, std::uint32_t slots) {
  std::vector<std::uint64_t> repeats(records);
  std::vector<bool> seen(records);
  for (const std::uint32_t record : demands) {
    repeats[record] += seen[record] ? 1 : 0;
    seen[record] = true;
  }
  std::sort(repeats.begin(), repeats.end(), std::greater<>());
  const auto end = repeats.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(slots, records));
  return {.demands = demands.size(), .hits = std::accumulate(repeats.begin(), end, std::uint64_t{0})};
}

// Rank: the latest next use goes first.
ReplayResult replay_belady(std::span<const std::uint32_t> demands, std::size_t records, std::uint32_t slots) {
  std::vector<std::uint64_t> next_use(demands.size());
  std::vector<std::uint64_t> seen(records, kNever);
  for (std::uint64_t at = demands.size(); at-- > 0;) next_use[at] = std::exchange(seen[demands[at]], at);
  RankedCache cache(records, slots);
  ReplayResult result{.demands = demands.size()};
  for (std::uint64_t now = 0; now < demands.size(); ++now) {
    const std::uint32_t record = demands[now];
    const std::pair<std::uint64_t, std::uint64_t> rank{kNever - next_use[now], 0};
    if (cache.keeps(record)) {
      ++result.hits;
    } else if (next_use[now] == kNever) {
      continue;
    } else if (cache.full()) {
      if (cache.lowest() > rank) continue;  // bypass: it is needed later than all that are kept
      cache.evict_lowest();
    }
    cache.set(record, rank);
  }
  return result;
}

// As `fetch` drives its table: residents of the visit are leased as they are demanded; with all demands known
// the visit ends, they are used, and the missing records are read one after the other.
ReplayResult replay_table(std::span<const ReplayVisit> visits, const ReplayShape& shape,
                          ResidentPolicy policy) {
  SlotTable table({.layers = shape.layers,
                   .experts = shape.experts,
                   .owned = shape.experts,
                   .slots = shape.slots,
                   .transit = shape.transit,
                   .policy = policy});
  ReplayResult result;
  std::uint64_t serial = 0;
  std::vector<std::uint32_t> missing, leased;
  for (const ReplayVisit& visit : visits) {
    ++serial;
    missing.clear();
    leased.clear();
    table.begin_visit(0, visit.layer, serial);
    for (const std::uint32_t expert : visit.experts) {
      const std::uint32_t record = table.record_of(visit.layer, expert);
      ++result.demands;
      table.demanded(0, record);
      if (const std::uint32_t slot = table.find(record); slot != SlotTable::kNone) {
        ++result.hits;
        table.lease(slot, serial);
        leased.push_back(slot);
      } else {
        missing.push_back(record);
      }
    }
    table.end_visit(0);
    // First what is there, as compute does: its slots may be needed.
    for (const std::uint32_t slot : leased) table.release(slot);
    for (const std::uint32_t record : missing) {
      const std::uint32_t slot = table.begin_read(record, serial, false);
      table.lease(slot, serial);
      table.landed(slot);
      table.release(slot);
    }
  }
  return result;
}

}  // namespace

std::string_view slot_policy_name(SlotPolicy policy) noexcept {
  switch (policy) {
    case SlotPolicy::lru: return "lru";
    case SlotPolicy::lfu: return "lfu";
    case SlotPolicy::pinned: return "pinned";
    case SlotPolicy::probability: return "probability";
    case SlotPolicy::fixed: return "fixed";
    case SlotPolicy::belady_bypass: return "belady";
  }
  return "unknown";
}

std::optional<SlotPolicy> find_slot_policy(std::string_view name) noexcept {
  for (const SlotPolicy policy : kSlotPolicies) {
    if (slot_policy_name(policy) == name) return policy;
  }
  return std::nullopt;
}

ReplayResult replay_slots(std::span<const ReplayVisit> visits, const ReplayShape& shape, SlotPolicy policy) {
  if (policy == SlotPolicy::probability) return replay_table(visits, shape, ResidentPolicy::probability);
  if (policy == SlotPolicy::pinned) return replay_table(visits, shape, ResidentPolicy::pinned);
  const std::vector<std::uint32_t> demands = demands_of(visits, shape.experts);
  const std::size_t records = std::size_t{shape.layers} * shape.experts;
  switch (policy) {
    case SlotPolicy::fixed: return replay_fixed(demands, records, shape.slots);
    case SlotPolicy::belady_bypass: return replay_belady(demands, records, shape.slots);
    default: return replay_recency(demands, records, shape.slots, policy == SlotPolicy::lfu);
  }
}

}  // namespace colibri
