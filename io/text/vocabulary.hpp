// A two-way map between token texts and ids, built once and then read-only (and so safe to
// share between threads). All texts lie in one buffer, found through an open-addressing
// table: a real vocabulary has 150,000 entries and is looked up for every word.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"

namespace colibri {

class Vocabulary {
 public:
  // Refuses ids outside [0, kMaxTokenIds) and any id or text that is already there.
  Status add(std::string_view text, std::int32_t id);

  std::optional<std::int32_t> find(std::string_view text) const noexcept;
  bool contains(std::int32_t id) const noexcept;
  // Empty for an id that is not there. Lives as long as the vocabulary.
  std::string_view text(std::int32_t id) const noexcept;
  // Larger than every id.
  std::int32_t id_limit() const noexcept { return static_cast<std::int32_t>(entries_.size()); }

 private:
  struct Entry {
    std::size_t begin = 0;
    std::uint32_t length = 0;
    bool present = false;
  };
  struct Bucket {
    std::uint32_t hash = 0;
    std::int32_t id = -1;  // -1: free
  };

  // The bucket that holds `text`, or the free one where it would go.
  std::size_t bucket_of(std::string_view text, std::uint32_t hash) const noexcept;
  void grow();

  std::string texts_;
  std::vector<Entry> entries_;   // by id
  std::vector<Bucket> buckets_;  // a power of two, at most half full
  std::size_t count_ = 0;
};

}  // namespace colibri
