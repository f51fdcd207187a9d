// Where the stretches of work begin and end, in rows and heads.
#include "stages/attention_cut.hpp"

#include <algorithm>

namespace colibri {

AttentionCut::AttentionCut(const Wave& wave, std::uint32_t kv_heads, std::uint32_t window) noexcept
    : wave_(wave), kv_heads_(kv_heads), window_(window) {
  for (std::uint32_t row = wave.row_begin; row < wave.row_end; ++row) keys_ += keys_of(row);
}

std::uint64_t AttentionCut::keys_of(std::uint32_t row) const noexcept {
  const std::uint32_t context = wave_.step->positions[row] + 1;
  return window_ == 0 ? context : std::min(context, window_);
}

std::uint32_t AttentionCut::run_end(std::uint32_t row, std::uint64_t& keys) const noexcept {
  const Step& step = *wave_.step;
  keys = keys_of(row);
  std::uint32_t next = row + 1;
  while (next < wave_.row_end && step.sequences[next] == step.sequences[row] &&
         step.positions[next] == step.positions[row] + (next - row)) {
    keys += keys_of(next++);
  }
  return next;
}

AttentionCut::Place AttentionCut::place(std::uint32_t run_begin, std::uint64_t run_keys,
                                        std::uint64_t work) const noexcept {
  Place place{static_cast<std::uint32_t>(work / run_keys), run_begin};
  const std::uint64_t rest = work % run_keys;
  for (std::uint64_t before = 0; before < rest; ++place.row) before += keys_of(place.row);
  return place;
}

std::uint64_t AttentionCut::tile_begin(std::size_t tiles, std::size_t tile) const noexcept {
  // In two parts: the product of all work and a number of tiles could be too large.
  const std::uint64_t work = keys_ * kv_heads_;
  return work / tiles * tile + work % tiles * tile / tiles;
}

}  // namespace colibri
