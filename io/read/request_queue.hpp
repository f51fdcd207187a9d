// RequestQueue: the requests of a backend, in a table whose size is fixed at creation.
//
// Requests wait in one of three lines: demands, hints, and cancelled ones whose completion
// is yet to be delivered. Demands and hints have a line for each file, that is each drive, so
// that one with a long line does not keep the others from work. A request leaves its line when
// its last piece has been issued, so a hint that is partly read can still be overtaken and
// promoted. Nothing allocates after construction. Not thread-safe; internal to io/read.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
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
    std::uint64_t order = 0;         // of joining the line
    std::uint32_t previous = kNone;  // in the line
    std::uint32_t next = kNone;      // in the line, or in the list of free entries
  };

  RequestQueue(std::uint32_t capacity, std::uint32_t files);

  // Takes a free entry and appends it to its line; kNone when all are in use.
  std::uint32_t add(const ReadRequest& request);
  // Gives the entry back; it must be in no line.
  void release(std::uint32_t index);

  Entry& entry(std::uint32_t index) { return entries_[index]; }
  // What to read next: a demand, else a hint, else kNone; of the file with the fewest bytes in flight
  // (in_flight [files]) that has any, and there the oldest.
  std::uint32_t next(std::span<const std::uint64_t> in_flight) const;
  // The oldest of a line.
  std::uint32_t front(Line line) const;
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

  // The line of a file, or the one of all cancelled requests.
  Ends& ends(Line line, std::uint32_t file) {
    return line == Line::cancelled ? cancelled_ : lines_[static_cast<std::size_t>(line) * files_ + file];
  }
  std::span<const Ends> lines_of(Line line) const;

  std::uint32_t files_;
  std::vector<Entry> entries_;
  std::vector<Ends> lines_;  // demands by file, then hints by file
  Ends cancelled_;
  std::uint64_t next_order_ = 0;
  std::uint32_t free_ = kNone;
  std::uint32_t used_ = 0;
};

}  // namespace colibri
