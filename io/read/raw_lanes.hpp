// RawLanes: single reads of the operating system, below retries, splitting and checksums.
//
// A lane carries one read at a time. The implementations (io_uring, pread, and a virtual
// clock) and what stands around them (faults, a slower drive) share this interface, so that
// everything above it, and above all the retry logic, is written and exercised once.
// Internal to io/read.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace colibri {

struct RawRead {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::byte* destination = nullptr;
  std::uint64_t length = 0;
  bool direct = false;                 // the file was open with O_DIRECT when this was issued
  std::chrono::microseconds delay{0};  // wait this long first, without occupying other lanes
};

struct RawResult {
  int error = 0;            // errno, 0 when the read gave bytes or found the end of the file
  std::uint64_t bytes = 0;  // 0 with error 0: end of file
};

// Receives what lanes report, always on a thread of the lanes.
class RawSink {
 public:
  virtual void on_read(std::uint32_t lane, const RawResult& result) = 0;
  virtual void on_nudge() = 0;

 protected:
  ~RawSink() = default;
};

class RawLanes {
 public:
  // Only called when no lane carries a read. Joins the threads.
  virtual ~RawLanes() = default;

  // Starts a read on a free lane; never blocks, never calls the sink itself.
  virtual void start(std::uint32_t lane, const RawRead& read) noexcept = 0;

  // Has sink.on_nudge() called soon, at least once after this call.
  virtual void nudge() noexcept = 0;

  // The clock by which reads take their time.
  virtual std::chrono::steady_clock::time_point now() const noexcept {
    return std::chrono::steady_clock::now();
  }
  // Somebody is about to wait until no lane carries a read. Lanes whose reads end only when their clock is
  // moved end them now, on this thread.
  virtual void drain() {}
};

}  // namespace colibri
