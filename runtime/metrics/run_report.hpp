// RunReport: what a run did, as plain data, and its two shapes: a table and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/export.hpp"

namespace colibri {

struct COLIBRI_API StageReport {
  std::string name;
  std::string kind;
  std::uint64_t items = 0;
  double busy_seconds = 0;     // in calls into the stage
  std::uint64_t messages = 0;  // taken from edges and from the completion port
  double hop_seconds = 0;      // estimate: taking messages; sending and waking, which is in busy_seconds too
  // Time in which the stage had a reason to wait, by reason: input, output_space, expert, device, memory.
  std::vector<std::pair<std::string, double>> blocked_seconds;
  double p50_seconds = 0, p95_seconds = 0, p99_seconds = 0, max_seconds = 0;  // one call
  double queue_p50_seconds = 0, queue_p95_seconds = 0, queue_p99_seconds = 0, queue_max_seconds = 0;
  std::uint32_t queue_high_water = 0;                          // fullest input edge, as its two ends saw it
  std::vector<std::pair<std::string, std::uint64_t>> metrics;  // as declared in StageInfo

  std::uint64_t metric(std::string_view metric_name) const noexcept;  // 0 when it has none of this name
};

struct COLIBRI_API RunReport {
  double wall_seconds = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t distinct_bytes = 0;
  std::uint64_t wasted_hint_bytes = 0;
  std::uint64_t prewarm_bytes = 0;           // read because earlier jobs used them; not among bytes_read
  std::uint64_t floor_bytes = 0;             // see fetch; 0 until the end of the job
  std::uint64_t small_step_bytes = 0;        // of bytes_read: demanded by steps below half of max_rows
  double small_step_seconds = 0;             // in which only such steps were under way
  std::optional<std::uint64_t> belady_hits;  // known when the job's routing was traced
  std::uint64_t demands = 0;
  std::uint64_t hits = 0;
  std::uint64_t peak_rss_bytes = 0;
  std::uint64_t planned_bytes = 0;
  std::uint64_t steps = 0;
  std::uint64_t messages = 0;  // hops from stage to stage, over all stages
  double hop_seconds = 0;
  std::string kernels;
  std::vector<StageReport> stages;

  double tokens_per_second() const noexcept;
  double hit_rate() const noexcept;         // 1 when nothing was demanded
  double reads_per_visit() const noexcept;  // bytes_read / distinct_bytes; 1 when nothing was read
  // bytes_read and prewarm_bytes / floor_bytes; 1 when nothing had to be read.
  double read_over_floor() const noexcept;
  double bytes_per_generated_token() const noexcept;  // bytes_read; 0 when nothing was generated
  double hop_share() const noexcept;                  // hop_seconds of all threads together / wall_seconds

  std::string to_table() const;  // aligned, for a terminal
  std::string to_json() const;   // format_version 1

 private:
  COLIBRI_HIDDEN std::string reads_text() const;
};

}  // namespace colibri
