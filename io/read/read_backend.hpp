// ReadBackend: asynchronous reads of expert records, the only way by which experts
// reach memory.
//
// A caller submits contiguous reads into memory that it owns and gets one completion
// for each, in any order. How the bytes arrive (io_uring lanes or a pool of threads,
// O_DIRECT or buffered) is chosen when the backend is opened and never changes what a
// caller sees: retries, short reads and checksums are dealt with before the completion.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"

namespace colibri {

class DeviceModel;    // io/read/device_model.hpp
class FaultPlan;      // io/read/fault_backend.hpp
class VirtualDevice;  // io/read/virtual_device.hpp

// Offsets, lengths and destinations of reads are multiples of this.
inline constexpr std::uint64_t kReadAlignment = 4096;

// One contiguous read into the caller's memory. The destination and the hashes must live
// until the completion has been delivered.
struct ReadRequest {
  std::uint64_t tag = 0;     // chosen by the caller, returned with the completion; unique while outstanding
  std::uint32_t file = 0;    // index into the files given to open_read_backend, of the first copy
  std::uint64_t offset = 0;  // multiple of kReadAlignment
  std::byte* destination = nullptr;             // aligned to kReadAlignment, `length` bytes
  std::uint64_t length = 0;                     // multiple of kReadAlignment, not 0
  std::span<const std::uint64_t> chunk_hashes;  // xxh3-64 of each chunk of the payload; empty: not checked
  std::uint64_t payload_length =
      0;  // bytes that the hashes cover, at most `length`; the last chunk may be partial
  std::uint64_t chunk_bytes = 0;  // multiple of kReadAlignment when there are hashes
  bool demand = false;            // demands are read before hints
};

// How a read ended. `bytes` is the length of the request when the status is ok, else 0.
struct ReadCompletion {
  std::uint64_t tag = 0;
  Status status;  // cancelled: by cancel() or close(); corrupt: checksum or short file; io: the drive
  std::uint64_t bytes = 0;
  std::uint32_t retries = 0;  // reads of the operating system that had to be issued again
  double seconds = 0;  // service time: from the first issued read to the end, without the wait in the queue
};

// Counters since opening, and the level now.
struct ReadStats {
  std::uint64_t reads = 0;   // requests completed well
  std::uint64_t failed = 0;  // requests completed with an error other than cancelled
  std::uint64_t cancelled = 0;
  std::uint64_t bytes = 0;  // of the reads completed well, each counted once
  std::uint64_t retries = 0;
  std::uint64_t retried_bytes = 0;  // asked for again after an error or a bad checksum
  double busy_seconds = 0;          // time with at least one read in flight
  std::uint32_t queued = 0;         // level: requests with no read issued yet
  std::uint32_t in_flight = 0;      // level: requests with a read issued
};

class ReadBackend {
 public:
  // Called once for each accepted request, on a thread of the backend, without any lock
  // held: it may submit, promote and cancel, but must not block, throw or close.
  using OnComplete = std::function<void(ReadCompletion&&)>;

  virtual ~ReadBackend() = default;  // closes, waiting as long as it takes

  // Queues a read and returns at once. Errors: invalid_input (misaligned, empty, unknown
  // file, hashes that do not fit), out_of_memory (max_outstanding reached), cancelled
  // (closed). No completion follows an error. Thread-safe, as all functions here.
  virtual Status submit(const ReadRequest& request) = 0;

  // Makes a hint a demand, behind the demands already queued. False when no hint with this
  // tag waits for reads to be issued.
  virtual bool promote(std::uint64_t tag) = 0;

  // Takes a read out of the queue; its completion follows with the status cancelled. False
  // when a read of it was already issued: the destination is then in use until the completion.
  virtual bool cancel(std::uint64_t tag) = 0;

  // Refuses new reads, cancels the queued ones and waits up to `limit` for those in flight, which a bandwidth
  // limit does not hold back any more.
  // False when some are still in flight: the kernel may write to their destinations at any
  // time, so leak this backend and that memory rather than free them.
  virtual bool close(std::chrono::milliseconds limit) = 0;

  // The most bytes a second that reads may take from now on, those in flight included; 0: no limit.
  virtual void limit_bandwidth(std::uint64_t bytes_per_second) = 0;

  virtual ReadStats stats() const = 0;

  // What reads and how, now: "io_uring, O_DIRECT, 16 lanes". Valid as long as the backend.
  virtual std::string_view description() const = 0;
};

enum class ReadKind : std::uint8_t {
  automatic,  // io_uring, or pread where the kernel or a sandbox refuses io_uring
  io_uring,   // opening fails where io_uring is refused
  pread,      // a pool of threads
};

enum class DirectIo : std::uint8_t {
  automatic,  // O_DIRECT, or buffered where it is refused (the page cache is then dropped behind each read)
  on,         // an error where O_DIRECT is refused
  off,        // buffered, and the page cache keeps what was read
};

struct ReadBackendOptions {
  ReadKind kind = ReadKind::automatic;
  std::uint32_t lanes = 0;  // reads in flight at a time; 0: 16 with io_uring, 8 threads with pread
  DirectIo direct = DirectIo::automatic;
  std::uint32_t max_outstanding = 1024;        // requests accepted and not yet completed
  std::uint64_t inflight_bytes = 64ULL << 20;  // bytes being read at a time (one read is always allowed)
  // Requests are read in pieces of at least this and less than twice this, in whole chunks.
  std::uint64_t read_bytes = 1ULL << 20;
  std::span<std::byte>
      registered_region;  // io_uring: registered with the kernel if it allows; outlives the backend
  std::function<void(std::string)> log;  // one line for each step down; may be called on a backend thread
  // The files are this many sets of equal files, one set after the other, on different drives: each piece
  // is read from the copy with the fewest bytes in flight, and after a failure from another one.
  std::uint32_t copies = 1;
  std::uint64_t bandwidth_limit = 0;  // bytes a second, see limit_bandwidth
  // Tests and benches only. Faults to inject below the retry logic.
  std::shared_ptr<FaultPlan> faults;
  // Drives that reads are held back to look like: file i lies on drives[i % size].
  std::vector<std::shared_ptr<DeviceModel>> drives;
  // Reads end on its clock, whatever `kind` says; somebody must move it. Excludes `drives`.
  std::shared_ptr<VirtualDevice> virtual_device;
};

inline constexpr std::uint32_t kMaxReadLanes = 256;

// Opens the files for reading and starts the threads. `on_complete` must stay callable
// until the backend is destroyed.
Result<std::unique_ptr<ReadBackend>> open_read_backend(std::span<const std::filesystem::path> files,
                                                       const ReadBackendOptions& options,
                                                       ReadBackend::OnComplete on_complete);

}  // namespace colibri
