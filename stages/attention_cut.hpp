// AttentionCut: divides the attention of a wave into tiles of about equal work.
//
// The work of a row is the keys that it sees, so rows of long sequences weigh more, and late
// ones of a prompt more than early ones. All of it is laid out along one line: a run of rows
// (of one sequence, at positions that follow each other) after the other, in a run one kv
// head after the other, in a head the rows. A tile is a stretch of that line, moved to the
// next whole row. Where the cuts are changes no result.
#pragma once

#include <colibri/messages.hpp>
#include <cstddef>
#include <cstdint>

namespace colibri {

// Rows of one run (of the step) and heads that go to the kernel together.
struct AttentionPiece {
  std::uint32_t row_begin, row_end;
  std::uint32_t kv_head_begin, kv_head_end;
};

class AttentionCut {
 public:
  // `wave` outlives the cut. window 0: rows see all positions up to their own.
  AttentionCut(const Wave& wave, std::uint32_t kv_heads, std::uint32_t window) noexcept;

  // That the rows see, together.
  std::uint64_t keys() const noexcept { return keys_; }

  // Calls fn(const AttentionPiece&) for each piece of tile `tile` out of `tiles`.
  template <class Fn>
  void for_pieces(std::size_t tiles, std::size_t tile, Fn&& fn) const;

 private:
  // A place on the line inside one run: row `row` of head `kv_head`.
  struct Place {
    std::uint32_t kv_head, row;
  };

  std::uint64_t keys_of(std::uint32_t row) const noexcept;
  // First row after the run that begins at `row`, and the keys of its rows.
  std::uint32_t run_end(std::uint32_t row, std::uint64_t& keys) const noexcept;
  // Place of the first row that begins at or after `work`, which counts from the start of the run.
  Place place(std::uint32_t run_begin, std::uint64_t run_keys, std::uint64_t work) const noexcept;
  std::uint64_t tile_begin(std::size_t tiles, std::size_t tile) const noexcept;

  const Wave& wave_;
  std::uint32_t kv_heads_;
  std::uint32_t window_;
  std::uint64_t keys_ = 0;
};

template <class Fn>
void AttentionCut::for_pieces(std::size_t tiles, std::size_t tile, Fn&& fn) const {
  const std::uint64_t from = tile_begin(tiles, tile), to = tile_begin(tiles, tile + 1);
  const auto piece = [&](AttentionPiece piece) {
    if (piece.row_begin < piece.row_end && piece.kv_head_begin < piece.kv_head_end) fn(piece);
  };
  std::uint64_t start = 0, run_keys = 0;  // of the run
  for (std::uint32_t row = wave_.row_begin, end; row < wave_.row_end && start < to; row = end) {
    end = run_end(row, run_keys);
    const std::uint64_t work = run_keys * kv_heads_;
    if (start + work > from) {
      const Place first = place(row, run_keys, from > start ? from - start : 0);
      const Place last = to - start < work ? place(row, run_keys, to - start) : Place{kv_heads_, row};
      if (first.kv_head == last.kv_head) {
        piece({first.row, last.row, first.kv_head, first.kv_head + 1});
      } else {
        const bool cut = first.row > row;  // the first head begins in its middle
        if (cut) piece({first.row, end, first.kv_head, first.kv_head + 1});
        piece({row, end, first.kv_head + (cut ? 1 : 0), last.kv_head});
        if (last.kv_head < kv_heads_) piece({row, last.row, last.kv_head, last.kv_head + 1});
      }
    }
    start += work;
  }
}

}  // namespace colibri
