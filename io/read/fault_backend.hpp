// Fault injection: makes chosen reads of the operating system go wrong, below the retry
// logic, so that what a test provokes is handled by the code that handles the real thing.
//
// A plan is given to open_read_backend in its options and works with every backend. Reads
// are counted from 1 in the order in which they start, repeated ones included; with one
// lane that order is exact, and a fault tied to an offset is exact with any number.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "io/read/raw_lanes.hpp"

namespace colibri {

enum class FaultKind : std::uint8_t {
  interrupted,     // EINTR
  again,           // EAGAIN
  short_read,      // half of the bytes (whole pages, at least one)
  io_error,        // EIO
  direct_refused,  // EINVAL, as from a file system without O_DIRECT; matches direct reads only
  wrong_bytes,     // one byte of the result is flipped
  slow,            // the result is held back for `delay`, others overtake it
  hang,            // the result is held back until release()
};

struct Fault {
  FaultKind kind = FaultKind::io_error;
  std::uint64_t first = 1;              // the first and
  std::uint64_t count = 1;              // the number of matching reads that go wrong
  std::optional<std::uint64_t> offset;  // matching: reads that cover this offset of a file; else all
  std::chrono::milliseconds delay{10};  // slow
  std::optional<std::uint32_t> file;    // matching: reads of this file, by its number; else of all
};

// What is to go wrong, and the gate of hanging reads. Shared by the test and the backend.
class FaultPlan {
 public:
  explicit FaultPlan(std::vector<Fault> faults = {});

  // Errors of the set-up, as errno; 0: none. Set before opening.
  int ring_setup_error = 0;
  int direct_open_error = 0;
  int registration_error = 0;

  // Lets every hanging read go on, and those that would hang later.
  void release();
  // Waits until `count` reads hang at the same time; false after `limit`.
  bool wait_until_hanging(std::uint32_t count, std::chrono::milliseconds limit);
  std::uint32_t hanging() const;
  // The offsets of all reads so far, in the order in which they were started. Completions
  // may overtake each other on the way to the caller; this order is the backend's own.
  std::vector<std::uint64_t> offsets_started() const;

 private:
  friend class FaultLanes;
  std::optional<Fault> next(const RawRead& read);  // counts the read

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Fault> faults_;
  std::vector<std::uint64_t> matched_;  // reads that matched, per fault
  std::vector<std::uint64_t> started_;  // offsets
  std::uint32_t hanging_ = 0;
  bool released_ = false;
};

}  // namespace colibri
