// How the slots are shared out between the fetch stages of a pipeline.
//
// Each fetch has slots of its own, in proportion to the records that it may be asked for, and
// at least one: with that it can serve any visit.
#pragma once

#include <colibri/registry.hpp>
#include <colibri/services.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "stages/slot_table.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {

// One fetch stage as the plan sees it.
struct FetchPart {
  std::string stage;
  std::uint64_t records = 0;         // of all MoE layers that it has; at least 1
  std::uint64_t inflight_bytes = 0;  // its parameter
  // That it can read between the last expert of a layer and the first one of the next, in steps of max_rows.
  std::uint64_t bytes_meanwhile = 0;

  TransitNeed transit_need(std::uint64_t slot_bytes) const noexcept;
};

// In the order of the file. The partitions were checked.
std::vector<FetchPart> fetch_parts(const PipelineSpec& pipeline, const Registry& registry,
                                   const ModelSpec& spec, std::uint32_t max_rows);

// fetches.size() <= slots <= the sum of records. Depends on nothing else.
std::vector<SlotShare> share_out_slots(const std::vector<FetchPart>& fetches, std::uint64_t slots,
                                       std::uint64_t slot_bytes);

}  // namespace colibri
