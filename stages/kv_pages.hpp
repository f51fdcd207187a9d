// KvPages: which pages of the KV region are free. A page holds 16 positions of all layers.
//
// A sequence takes all pages that it can ever need when it starts, so a started sequence
// always finishes. The page given back last is handed out first: its memory is warm.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel_table.hpp"

namespace colibri {

constexpr std::uint32_t kv_pages_for(std::uint64_t positions) noexcept {
  return static_cast<std::uint32_t>((positions + kernels::kKvPagePositions - 1) / kernels::kKvPagePositions);
}

class KvPages {
 public:
  // The pages 0 .. total - 1, all free.
  explicit KvPages(std::uint32_t total);

  std::uint32_t total() const noexcept { return total_; }
  std::uint32_t free() const noexcept { return static_cast<std::uint32_t>(free_.size()); }

  // Appends `count` pages to `pages`; takes none and returns false when fewer are free.
  bool take(std::uint32_t count, std::vector<std::uint32_t>& pages);
  // Takes all of `pages` back and empties it.
  void give_back(std::vector<std::uint32_t>& pages);

 private:
  std::uint32_t total_;
  std::vector<std::uint32_t> free_;  // a stack
};

}  // namespace colibri
