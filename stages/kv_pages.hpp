// KvPages: which pages of the KV region are free; and how sequences share them out in blocks.
//
// A page holds 16 positions of all layers. A sequence that comes back for more steps takes all
// pages that it can ever need when it starts, so a started sequence always finishes. A sequence
// whose rows are all in one step needs the keys and values of one layer at a time: a layer is
// attended for all waves before any wave reaches the next MoE layer. Such sequences share the pages
// of their step block by block, and a page does for as many positions as it has layers.
#pragma once

#include <colibri/services.hpp>
#include <cstdint>
#include <vector>

#include "io/container/model_spec.hpp"
#include "kernels/kernel_table.hpp"

namespace colibri {

// Blocks (16 positions of one layer each) for so many positions; also the pages of a sequence of its own.
constexpr std::uint32_t kv_blocks_for(std::uint64_t positions) noexcept {
  return static_cast<std::uint32_t>((positions + kernels::kKvPagePositions - 1) / kernels::kKvPagePositions);
}

// Fills layers, run_layers and layer_in_run from the model.
void describe_kv_layers(const ModelSpec& spec, KvRegion& kv);

// All positions of the sequence will be rows of one step, if a step has room for them.
bool is_prompt_only(const Sequence& sequence) noexcept;

class KvPages {
 public:
  // The pages 0 .. total - 1, all free. A page is `layers` blocks.
  KvPages(std::uint32_t total, std::uint32_t layers);

  std::uint32_t total() const noexcept { return total_; }
  std::uint32_t free() const noexcept { return static_cast<std::uint32_t>(free_.size()); }

  // Appends the first blocks of `count` pages to `blocks`; takes none and returns false when fewer are free.
  // The page given back last is handed out first: its memory is warm.
  bool take(std::uint32_t count, std::vector<std::uint32_t>& blocks);
  // Takes all pages of `blocks` back and empties it.
  void give_back(std::vector<std::uint32_t>& blocks);

 private:
  std::uint32_t total_;
  std::uint32_t layers_;
  std::vector<std::uint32_t> free_;  // a stack
};

// The pages of one step, shared out in runs of blocks between the sequences that are in no other.
class StepKvPages {
 public:
  StepKvPages(KvPages& pages, const KvRegion& kv) noexcept;  // both outlive this

  // Runs in a page.
  static std::uint32_t runs_per_page(const KvRegion& kv) noexcept { return kv.layers / kv.run_layers; }
  // Appends a run for each 16 of `positions`; takes none and returns false when too few pages are free.
  bool take(std::uint64_t positions, std::vector<std::uint32_t>& blocks);
  void give_back();

 private:
  KvPages* pages_;
  std::uint32_t run_layers_;
  std::uint32_t runs_per_page_;
  std::uint32_t used_runs_ = 0;       // of the last page
  std::vector<std::uint32_t> taken_;  // first blocks of the pages
};

}  // namespace colibri
