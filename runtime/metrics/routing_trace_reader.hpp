// Reads what `--trace-routing` wrote: the visits of a job and the records that each demands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/status.hpp"
#include "stages/slot_replay.hpp"
#include "stages/slot_table.hpp"

namespace colibri {

struct RoutingTraceContent {
  std::uint32_t moe_layers = 0;  // layers that the trace names; a visit's layer is the ordinal among them
  std::uint32_t experts = 0;
  std::uint64_t record_bytes = 0;
  TransitNeed transit_need;         // of the job
  std::uint64_t rows = 0;           // lines after the header
  std::vector<ReplayVisit> visits;  // in order of time; experts in order of first demand
};

// Errors name file and line. Memory: four bytes for each distinct expert of each visit.
Result<RoutingTraceContent> read_routing_trace(const std::string& path);

}  // namespace colibri
