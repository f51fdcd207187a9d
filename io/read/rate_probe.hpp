// measure_read_rate: how fast the reader of experts reads random places of files.
//
// The same backend that a run uses, kept full with reads of one size: what a drive gives at a
// size and a depth, and what to set `read_bytes` and `lanes` to. Nothing is written.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "io/read/read_backend.hpp"
#include "io/status.hpp"

namespace colibri {

struct RateProbe {
  std::vector<std::filesystem::path> files;  // each of at least read_bytes; all are read alike
  std::uint64_t read_bytes = 1ULL << 20;     // of a read, a multiple of kReadAlignment
  std::uint32_t depth = 16;                  // reads in flight: lanes
  std::chrono::milliseconds duration{1000};  // after a fifth of it that does not count
  ReadKind kind = ReadKind::automatic;
  DirectIo direct = DirectIo::automatic;
  std::uint64_t seed = 1;                // of the places
  std::function<bool()> cancelled;       // asked about every 20 ms; may be empty
  std::function<void(std::string)> log;  // steps down of the backend; may be empty
};

struct ReadRate {
  double bytes_per_second = 0;
  std::uint64_t reads = 0;  // that were counted
  std::string description;  // of the backend
};

// Errors: invalid_input (sizes), those of the backend and of the reads, cancelled.
Result<ReadRate> measure_read_rate(const RateProbe& probe);

}  // namespace colibri
