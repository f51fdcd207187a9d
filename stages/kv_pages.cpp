// The stack of free KV pages.
#include "stages/kv_pages.hpp"

namespace colibri {

KvPages::KvPages(std::uint32_t total) : total_(total) {
  free_.reserve(total);
  for (std::uint32_t page = total; page > 0; --page) free_.push_back(page - 1);
}

bool KvPages::take(std::uint32_t count, std::vector<std::uint32_t>& pages) {
  if (count > free()) return false;
  pages.reserve(pages.size() + count);
  for (; count > 0; --count) {
    pages.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void KvPages::give_back(std::vector<std::uint32_t>& pages) {
  // Backwards, so that the same pages come out in the same order for the next sequence.
  for (; !pages.empty(); pages.pop_back()) free_.push_back(pages.back());
}

}  // namespace colibri
