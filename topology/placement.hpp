// Placement: which stages share which CPUs, with how many threads, and where memory lies.
//
// place_pipeline is a pure function of the pipeline and the machine: it looks at nothing else,
// and says in words why. The runtime builds exactly this plan; `colibri check --placement` prints it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/export.hpp"
#include "topology/machine.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {

// CPUs and the threads on them, shared by the stages that name the same CPUs. Stages that name none share one
// placement that is not pinned.
struct PlannedPlacement {
  std::string name;                   // "default", "node 1", "cpus 2-3"
  std::vector<std::uint32_t> cpus;    // ascending; empty: threads are not pinned
  std::uint32_t threads = 1;          // at least 1
  std::optional<std::uint32_t> node;  // the NUMA node of all its CPUs; nullopt: none is known, or several
  std::string reason;
};

// Where memory is taken from.
struct MemoryBinding {
  std::vector<std::uint32_t> nodes;  // ascending; several take turns; empty: not bound
  std::string reason;
};

struct COLIBRI_API PlacementPlan {
  std::vector<PlannedPlacement> placements;  // in the order in which stages first use them
  std::vector<std::size_t> placement_of_stage;
  std::vector<std::uint32_t> workers_of_stage;  // threads that the stage's parallel work may use
  // Memory that stages share, by what their kinds work in (StageInfo::memory).
  MemoryBinding dense, kv, steps;
  // Memory that belongs to one stage: its own, and for `fetch` its slots.
  std::vector<MemoryBinding> memory_of_stage;
  // Not empty: the CPUs are not those that the file names; one line that says so.
  std::string note;

  std::uint32_t threads() const noexcept;       // of all placements
  std::uint32_t most_threads() const noexcept;  // of one; at least 1
};

// CPUs and nodes that the machine lacks are left out (machine_check.hpp tells of them); a stage without any
// is placed with those that name none.
COLIBRI_API PlacementPlan place_pipeline(const PipelineSpec& spec, StageInfos kinds, const Machine& machine);

// The machine, the placements with their stages, and the memory, as an aligned table.
COLIBRI_API std::string placement_table(const PipelineSpec& spec, StageInfos kinds, const Machine& machine,
                                        const PlacementPlan& plan);

}  // namespace colibri
