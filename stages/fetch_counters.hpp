// What `fetch` counts: declared once, bumped by the stage.
#pragma once

#include <colibri/stage.hpp>

namespace colibri {

inline constexpr MetricInfo kFetchMetrics[] = {
    {"demands_total", "records demanded: distinct experts over all visits"},
    {"hits_total", "demands whose record was resident, or read ahead and landed"},
    {"reads_total", "records read"},
    {"bytes_read_total", "bytes of the records read"},
    {"distinct_bytes_total", "bytes of the distinct records read for each visit, summed over visits"},
    {"failed_reads_total", "records that could not be read, or not before the deadline"},
    {"hint_reads_total", "records read ahead"},
    {"useful_hints_total", "records read ahead that had landed when they were demanded"},
    {"late_hints_total", "records read ahead that were still in flight when they were demanded"},
    {"wasted_hint_bytes_total", "bytes read ahead and never demanded"},
    {"prewarm_reads_total", "records read because earlier jobs used them, while nothing else was to be read"},
    {"prewarm_bytes_total", "bytes of these; not among bytes_read_total"},
    {"prewarm_under_way", "of these, reads that have not ended"},
    {"small_step_bytes_total", "bytes read that steps of less than half of max_rows demanded"},
    {"floor_bytes_total",
     "bytes to be read for the same demands, had the best set of records stayed resident"},
    {"slots", "slots of the stage"},
    {"resident_records", "records resident at the end"},
    {"peak_pending_demands", "most demands that waited for a slot at a time"},
};

struct FetchCounters {
  Counter *demands = nullptr, *hits = nullptr;
  Counter *reads = nullptr, *bytes_read = nullptr, *distinct_bytes = nullptr, *failed_reads = nullptr;
  Counter *hint_reads = nullptr, *useful_hints = nullptr, *late_hints = nullptr;
  Counter* wasted_hint_bytes = nullptr;
  Counter *prewarm_reads = nullptr, *prewarm_bytes = nullptr, *prewarm_under_way = nullptr;
  Counter *small_step_bytes = nullptr, *floor_bytes = nullptr;
  Counter *slots = nullptr, *resident = nullptr, *peak_pending = nullptr;

  void read(std::uint64_t bytes, bool distinct) noexcept {
    reads->add(1);
    bytes_read->add(bytes);
    if (distinct) distinct_bytes->add(bytes);
  }
  void prewarmed(std::uint64_t bytes) noexcept {
    prewarm_reads->add(1);
    prewarm_bytes->add(bytes);
  }

  void declare(StageContext& context) {
    demands = context.counter("demands_total");
    hits = context.counter("hits_total");
    reads = context.counter("reads_total");
    bytes_read = context.counter("bytes_read_total");
    distinct_bytes = context.counter("distinct_bytes_total");
    failed_reads = context.counter("failed_reads_total");
    hint_reads = context.counter("hint_reads_total");
    useful_hints = context.counter("useful_hints_total");
    late_hints = context.counter("late_hints_total");
    wasted_hint_bytes = context.counter("wasted_hint_bytes_total");
    prewarm_reads = context.counter("prewarm_reads_total");
    prewarm_bytes = context.counter("prewarm_bytes_total");
    prewarm_under_way = context.counter("prewarm_under_way");
    small_step_bytes = context.counter("small_step_bytes_total");
    floor_bytes = context.counter("floor_bytes_total");
    slots = context.counter("slots");
    resident = context.counter("resident_records");
    peak_pending = context.counter("peak_pending_demands");
  }
};

}  // namespace colibri
