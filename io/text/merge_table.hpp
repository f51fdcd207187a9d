// From a pair of adjacent token ids to the merge rule for it: a flat hash table, because it
// is asked twice for every merge that BPE makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace colibri {

class MergeTable {
 public:
  struct Rule {
    std::uint32_t rank;  // smaller merges first
    std::int32_t merged_id;
  };

  // Room for `rules` rules; must be called once, before set.
  void reserve(std::size_t rules);
  // A later rule for the same pair replaces the earlier one.
  void set(std::int32_t left, std::int32_t right, Rule rule);
  // Null when the pair does not merge.
  const Rule* find(std::int32_t left, std::int32_t right) const noexcept {
    const Bucket& bucket = buckets_[bucket_of(key_of(left, right))];
    return bucket.key == kFree ? nullptr : &bucket.rule;
  }

 private:
  // Ids are not negative, so no pair has this key.
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Bucket {
    std::uint64_t key = kFree;
    Rule rule{};
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) noexcept {
    return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) | static_cast<std::uint32_t>(right);
  }
  std::size_t bucket_of(std::uint64_t key) const noexcept {
    const std::size_t mask = buckets_.size() - 1;
    std::uint64_t mixed = key * 0x9E3779B97F4A7C15u;  // Fibonacci hashing: the high bits mix best
    std::size_t index = (mixed ^ (mixed >> 32)) & mask;
    while (buckets_[index].key != key && buckets_[index].key != kFree) index = (index + 1) & mask;
    return index;
  }

  std::vector<Bucket> buckets_ = std::vector<Bucket>(1);  // a power of two, at most half full
};

inline void MergeTable::reserve(std::size_t rules) {
  std::size_t size = 2;
  while (size < 2 * rules + 2) size *= 2;
  buckets_.assign(size, Bucket{});
}

inline void MergeTable::set(std::int32_t left, std::int32_t right, Rule rule) {
  const std::uint64_t key = key_of(left, right);
  buckets_[bucket_of(key)] = {key, rule};
}

}  // namespace colibri
