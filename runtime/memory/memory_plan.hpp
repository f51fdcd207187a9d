// MemoryPlan: every size of a run, known before anything is allocated, and where stages run.
//
// Computed from the model, the pipeline and the machine; `colibri plan` prints it, the
// engine allocates exactly it. What does not fit is refused with the whole list.
#pragma once

#include <colibri/registry.hpp>
#include <colibri/services.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "io/container/container.hpp"
#include "kernels/export.hpp"
#include "runtime/memory/workload.hpp"
#include "topology/machine.hpp"
#include "topology/pipeline_spec.hpp"
#include "topology/placement.hpp"

namespace colibri {

struct PlanLine {
  std::string pool;  // static, dynamic, scratch, experts, process
  std::string what;
  std::uint64_t bytes = 0;
};

// The slots of one fetch stage.
struct PlannedShare {
  std::string stage;
  SlotShare share;
};

struct COLIBRI_API MemoryPlan {
  PlanInputs inputs;              // inputs.spec points into the container
  PlacementPlan placement;        // its threads decide how much memory stages need
  std::uint64_t max_seq_len = 0;  // of the model
  std::uint64_t kv_pages = 0;
  std::uint64_t kv_page_bytes = 0;  // of all layers
  std::uint64_t kv_layer_bytes = 0;
  std::uint64_t step_bytes = 0;  // one step's buffers
  std::uint64_t hint_batches = 0;
  std::uint64_t static_bytes = 0;
  std::uint64_t dynamic_bytes = 0;         // KV pages, steps, hints
  std::uint64_t scratch_bytes = 0;         // all stages
  std::vector<std::uint64_t> stage_bytes;  // by stage, in the order of the pipeline
  std::uint64_t slots = 0;
  std::uint64_t transit = 0;          // of all shares
  std::uint64_t slots_in_flight = 0;  // TransitNeed of all fetches
  std::uint64_t slots_between_layers = 0;
  std::vector<PlannedShare> slot_shares;  // by fetch stage, in the order of the pipeline
  std::uint64_t slot_bytes = 0;           // stride
  std::uint64_t process_bytes = 0;        // the program, tokenizer, tables, stacks and rings
  std::uint64_t usable_bytes = 0;         // what the machine allows
  std::uint64_t total_bytes = 0;
  MessageCredits credits{};  // how many messages circulate at most
  std::vector<PlanLine> lines;

  // Longest request that the KV pages can hold, in tokens.
  std::uint64_t longest_request() const noexcept { return kv_pages * kernels::kKvPagePositions; }
  std::string to_table() const;
  std::string to_json() const;
};

// process_bytes: resident size of the process now. `workload`: for max_rows auto. Errors: capacity (does not
// fit, with the list), invalid_input (a pool that was set by hand is too small; says how much it needs. An
// expert of the model that no stage has, or a stage that has none). `problems`, when not null, gets all that
// is refused at once, each with its place, and edges that hold too little.
COLIBRI_API Result<MemoryPlan> plan_memory(const Container& container, const PipelineSpec& pipeline,
                                           const Registry& registry, const Machine& machine,
                                           std::uint64_t process_bytes, const Workload& workload = {},
                                           PipelineProblems* problems = nullptr);

}  // namespace colibri
