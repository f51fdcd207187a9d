// How work is cut into tiles for StageContext::parallel.
//
// A tile should take tens of microseconds: tiny models must not pay for scheduling, big
// ones must keep every thread busy. Tiling never changes a result: each output element is
// computed whole inside one tile, in one order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace colibri {

// Multiply-adds that make a tile worth a task: about 20 us at 10 GFLOP/s of a slow core.
inline constexpr std::uint64_t kTileMultiplyAdds = 400'000;

// Number of tiles for `items` equal pieces of `multiply_adds_per_item` each, at most `items`,
// at most four a worker.
inline std::size_t tiles_for(std::size_t items, std::uint64_t multiply_adds_per_item,
                             std::uint32_t workers) noexcept {
  if (items <= 1 || workers <= 1) return std::min<std::size_t>(items, 1);
  const std::uint64_t total =
      static_cast<std::uint64_t>(items) * std::max<std::uint64_t>(multiply_adds_per_item, 1);
  const std::uint64_t worth = total / kTileMultiplyAdds;
  return static_cast<std::size_t>(
      std::clamp<std::uint64_t>(worth, 1, std::min<std::uint64_t>(items, std::uint64_t{4} * workers)));
}

struct TileRange {
  std::size_t begin, end;
};
// Items of tile `tile` out of `tiles`; sizes differ by at most one.
inline TileRange tile_range(std::size_t items, std::size_t tiles, std::size_t tile) noexcept {
  return {items * tile / tiles, items * (tile + 1) / tiles};
}

}  // namespace colibri
