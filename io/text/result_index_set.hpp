// ResultIndexSet: which requests have been answered already, as bits.
//
// Indexes come from files and may be any number, so the bits are kept in blocks that exist
// only where an index was inserted: dense sets cost a bit or two an index, hostile ones no
// more than a fixed amount for each line that names one.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

namespace colibri {

class ResultIndexSet {
 public:
  // False when it was there before.
  bool insert(std::uint64_t index) {
    std::uint64_t& word = blocks_[index / kBlockBits][index % kBlockBits / 64];
    const std::uint64_t bit = std::uint64_t{1} << (index % 64);
    if ((word & bit) != 0) return false;
    word |= bit;
    ++size_;
    return true;
  }

  bool contains(std::uint64_t index) const {
    const auto block = blocks_.find(index / kBlockBits);
    return block != blocks_.end() && (block->second[index % kBlockBits / 64] >> (index % 64) & 1U) != 0;
  }

  std::uint64_t size() const noexcept { return size_; }

 private:
  static constexpr std::uint64_t kBlockBits = 2048;
  std::unordered_map<std::uint64_t, std::array<std::uint64_t, kBlockBits / 64>> blocks_;
  std::uint64_t size_ = 0;
};

}  // namespace colibri
