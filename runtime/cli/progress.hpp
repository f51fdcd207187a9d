// Progress: how far a long job is, for a person who waits.
//
// On a terminal one line is redrawn a few times a second; elsewhere a plain line is written every
// ten seconds, so that a log of a long job stays short and that of a short one stays empty.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/cli/console.hpp"

namespace colibri::cli {

enum class ProgressUnit : std::uint8_t { bytes, items };

// One moment of a job. `total` 0: not known.
struct ProgressState {
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  std::uint64_t done_at_start = 0;  // by an earlier run: not counted in the rate
  double elapsed_seconds = 0;
  std::string_view extra;  // more figures, as they shall stand at the end of the line
};

// "verify: 1.50 GiB of 4.00 GiB (37 %), 512.00 MiB/s, 5 s left, extra"
std::string format_progress(std::string_view label, ProgressUnit unit, const ProgressState& state);

// Calls come from one thread at a time.
class Progress {
 public:
  Progress(Console& console, std::string label, ProgressUnit unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap when nothing is due: may be called for every piece of work.
  void update(std::uint64_t done, std::uint64_t total, std::string_view extra = {});
  // Whether the next update will be shown: for callers whose `extra` is costly to make.
  bool due() const noexcept;
  // Removes the redrawn line. Called by the destructor.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  Console& console_;
  std::string label_;
  ProgressUnit unit_;
  Clock::time_point start_;
  Clock::time_point next_;
  std::uint64_t done_at_start_ = 0;
  bool started_ = false;
};

}  // namespace colibri::cli
