// HintList: records worth reading ahead, nearest visit first, then likeliest first.
//
// A sorted array: it holds at most a few visits' experts, and it never allocates after
// construction. A record is in it once, for the nearest visit and with the highest probability that was
// named.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace colibri {

struct Hint {
  std::uint32_t record = 0;
  float probability = 0;
  std::uint64_t key = 0;  // of the visit; ascending in time
  bool sweep = false;     // HintTarget::sweep
};

class HintList {
 public:
  explicit HintList(std::size_t records = 0) { hints_.reserve(records); }

  bool empty() const noexcept { return hints_.empty(); }
  // The first one that is `worth` it, to be taken out by `take`; null: there is none.
  template <class Worth>
  const Hint* first(Worth&& worth) const noexcept {
    const auto found = std::find_if(hints_.begin(), hints_.end(), worth);
    return found == hints_.end() ? nullptr : &*found;
  }
  Hint take(const Hint* hint) noexcept {
    const Hint taken = *hint;
    hints_.erase(hints_.begin() + (hint - hints_.data()));
    return taken;
  }

  void add(Hint hint) noexcept {
    const auto same =
        std::find_if(hints_.begin(), hints_.end(), [&](const Hint& h) { return h.record == hint.record; });
    if (same != hints_.end()) {
      hint.probability = std::max(same->probability, hint.probability);
      hint.key = std::min(same->key, hint.key);
      hints_.erase(same);
    }
    hints_.insert(std::upper_bound(hints_.begin(), hints_.end(), hint, before), hint);
  }
  // Forgets the hints that `stale` says so of.
  template <class Stale>
  void drop(Stale&& stale) noexcept {
    std::erase_if(hints_, [&](const Hint& hint) { return stale(hint); });
  }

 private:
  static bool before(const Hint& a, const Hint& b) noexcept {
    return a.key != b.key ? a.key < b.key : a.probability > b.probability;
  }

  std::vector<Hint> hints_;
};

}  // namespace colibri
