// A PipelineSpec with its names looked up: what checking, drawing and building start from.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "topology/pipeline_spec.hpp"

namespace colibri {

inline constexpr int kUnresolved = -1;

// An edge by indices; parts that name nothing are kUnresolved. Ports index StageInfo::outputs and inputs.
struct ResolvedEdge {
  int from_stage = kUnresolved;
  int from_port = kUnresolved;
  int to_stage = kUnresolved;
  int to_port = kUnresolved;

  bool complete() const noexcept { return from_port != kUnresolved && to_port != kUnresolved; }
};

// Indices follow spec.stages and spec.edges; valid as long as the kinds are.
struct PipelineGraph {
  std::vector<const StageInfo*> infos;  // [stages] null: unknown kind
  std::vector<ResolvedEdge> edges;      // [edges]

  const PortInfo& output(const ResolvedEdge& edge) const {
    return infos[static_cast<std::size_t>(edge.from_stage)]
        ->outputs[static_cast<std::size_t>(edge.from_port)];
  }
  const PortInfo& input(const ResolvedEdge& edge) const {
    return infos[static_cast<std::size_t>(edge.to_stage)]->inputs[static_cast<std::size_t>(edge.to_port)];
  }
};

PipelineGraph resolve_pipeline(const PipelineSpec& spec, StageInfos kinds);

int find_port(std::span<const PortInfo> ports, std::string_view name) noexcept;  // kUnresolved: none

// A state that messages of an edge can have, and the edge at whose start they got it.
struct ArrivingState {
  std::string_view state;
  std::size_t edge = 0;
};
// What can arrive over a complete edge, found through stages whose ports have kSameState. Ports without a
// state, and ways that lead to nothing, add none.
std::vector<ArrivingState> arriving_states(const PipelineGraph& graph, std::size_t edge);

// The strongly connected component of each stage, over complete edges. Without feedback edges (those into
// a feedback port), two stages of one component form a cycle that nothing marks as meant.
std::vector<int> strong_components(const PipelineGraph& graph, bool with_feedback);

}  // namespace colibri
