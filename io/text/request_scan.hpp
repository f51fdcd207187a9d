// One pass over a request file before anything runs: how much there is, what identifies the
// input, and which ids stand in more than one line.
//
// Memory is 24 bytes a line (a hash of the id and the line's number), whatever the lines hold.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "io/status.hpp"
#include "io/text/content_hash.hpp"

namespace colibri {

struct InputScan {
  std::uint64_t lines = 0;     // all, blank ones too: every index is below it
  std::uint64_t requests = 0;  // lines that are not blank
  std::uint64_t bytes = 0;
  std::uint64_t longest_line = 0;  // bytes, without line ending
  Hash128 digest;                  // of the requests and their line numbers
};

// Fails when the file cannot be read, or with all ids that are given twice (the first ten by name).
// `stopping` (may be empty) is asked at each line: true ends it with ErrorCode::cancelled.
Result<InputScan> scan_requests(const std::string& path, const std::function<bool()>& stopping = {});

// The same check for input that can be read only once: tells an id that came before.
class IdSet {
 public:
  // False when this id was added before.
  bool insert(std::string_view id) { return seen_.insert(content_hash128(id)).second; }

 private:
  struct Hasher {
    std::size_t operator()(const Hash128& hash) const noexcept { return static_cast<std::size_t>(hash.low); }
  };
  std::unordered_set<Hash128, Hasher> seen_;
};

}  // namespace colibri
