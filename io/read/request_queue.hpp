// RequestQueue: the requests of a backend, in a table whose size is fixed at creation.
//
// Requests wait in one of three lines: demands, hints, and cancelled ones whose completion
// is yet to be delivered. A request leaves its line when its last piece has been issued,
// so a hint that is partly read can still be overtaken and promoted. Nothing allocates
// after construction. Not thread-safe; internal to io/read.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "io/read/read_backend.hpp"
#include "io/status.hpp"

namespace colibri {

class RequestQueue {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  enum class Line : std::uint8_t { demand, hint, cancelled, none };

  struct Entry {
    ReadRequest request;
    std::uint64_t issued = 0;  // bytes for which a piece was issued
    std::uint32_t pieces_in_flight = 0;
    std::uint32_t retries = 0;
    std::chrono::steady_clock::time_point first_issue;
    Status failure;  // the first one
    Line line = Line::none;
    std::uint32_t previous = kNone;  // in the line
    std::uint32_t next = kNone;      // in the line, or in the list of free entries
  };

  explicit RequestQueue(std::uint32_t capacity);

  // Takes a free entry and appends it to its line; kNone when all are in use.
  std::uint32_t add(const ReadRequest& request);
  // Gives the entry back; it must be in no line.
  void release(std::uint32_t index);

  Entry& entry(std::uint32_t index) { return entries_[index]; }
  // The first demand, else the first hint, else kNone.
  std::uint32_t front() const;
  std::uint32_t front(Line line) const { return lines_[static_cast<std::size_t>(line)].head; }
  std::uint32_t find(Line line, std::uint64_t tag) const;
  // Moves an entry to the end of `line`, or out of all lines.
  void move(std::uint32_t index, Line line);

  std::uint32_t capacity() const { return static_cast<std::uint32_t>(entries_.size()); }
  std::uint32_t used() const { return used_; }

 private:
  struct Ends {
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
  };

  std::vector<Entry> entries_;
  Ends lines_[3];  // demand, hint, cancelled
  std::uint32_t free_ = kNone;
  std::uint32_t used_ = 0;
};

}  // namespace colibri
