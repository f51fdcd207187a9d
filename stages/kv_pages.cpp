// The stack of free KV pages, and the cursor of a step into its own.
#include "stages/kv_pages.hpp"

#include <algorithm>

namespace colibri {

void describe_kv_layers(const ModelSpec& spec, KvRegion& kv) {
  kv.layers = spec.num_layers();
  kv.run_layers = 1;
  kv.layer_in_run.clear();
  std::uint32_t in_run = 0;
  for (const LayerSpec& layer : spec.layers) {
    kv.layer_in_run.push_back(in_run++);
    kv.run_layers = std::max(kv.run_layers, in_run);
    if (layer.moe) in_run = 0;
  }
}

bool is_prompt_only(const Sequence& sequence) noexcept {
  return sequence.request.task == Task::score || sequence.request.task == Task::embed;
}

KvPages::KvPages(std::uint32_t total, std::uint32_t layers) : total_(total), layers_(layers) {
  free_.reserve(total);
  for (std::uint32_t page = total; page > 0; --page) free_.push_back(page - 1);
}

bool KvPages::take(std::uint32_t count, std::vector<std::uint32_t>& blocks) {
  if (count > free()) return false;
  blocks.reserve(blocks.size() + count);
  for (; count > 0; --count) {
    blocks.push_back(free_.back() * layers_);
    free_.pop_back();
  }
  return true;
}

void KvPages::give_back(std::vector<std::uint32_t>& blocks) {
  // Backwards, so that the same pages come out in the same order for the next sequence.
  for (; !blocks.empty(); blocks.pop_back()) free_.push_back(blocks.back() / layers_);
}

StepKvPages::StepKvPages(KvPages& pages, const KvRegion& kv) noexcept
    : pages_(&pages),
      run_layers_(kv.run_layers),
      runs_per_page_(runs_per_page(kv)),
      used_runs_(runs_per_page_) {}

bool StepKvPages::take(std::uint64_t positions, std::vector<std::uint32_t>& blocks) {
  std::uint32_t runs = kv_blocks_for(positions);
  const std::uint32_t left = runs_per_page_ - used_runs_;
  const std::uint32_t beyond = runs > left ? runs - left : 0;
  std::size_t page = taken_.size() - (left > 0 ? 1 : 0);
  if (!pages_->take((beyond + runs_per_page_ - 1) / runs_per_page_, taken_)) return false;
  blocks.reserve(blocks.size() + runs);
  for (; runs > 0; --runs) {
    if (used_runs_ == runs_per_page_) used_runs_ = 0;
    blocks.push_back(taken_[page] + used_runs_ * run_layers_);
    if (++used_runs_ == runs_per_page_) ++page;
  }
  return true;
}

void StepKvPages::give_back() {
  pages_->give_back(taken_);
  used_runs_ = runs_per_page_;
}

}  // namespace colibri
