// Name lookup, and the cycles of the graph as strongly connected components.
#include "topology/pipeline_graph.hpp"

#include <algorithm>
#include <map>

#include "topology/problem_text.hpp"

namespace colibri {
namespace {

// Tarjan's algorithm: a component is complete when its first visited stage is left and nothing in it reached
// further back. `low_` is how far back a stage reaches, `open_` holds the stages of incomplete components.
class Components {
 public:
  explicit Components(std::vector<std::vector<int>> next)
      : next_(std::move(next)),
        order_(next_.size(), kUnresolved),
        low_(next_.size(), 0),
        component_(next_.size(), kUnresolved) {}

  std::vector<int> find() {
    for (std::size_t stage = 0; stage < next_.size(); ++stage) {
      if (order_[stage] == kUnresolved) visit(stage);
    }
    return std::move(component_);
  }

 private:
  // As deep as there are stages: at most kMaximumStages from a file.
  void visit(std::size_t stage) {
    order_[stage] = low_[stage] = clock_++;
    open_.push_back(stage);
    for (const int target : next_[stage]) {
      const auto to = static_cast<std::size_t>(target);
      if (order_[to] == kUnresolved) {
        visit(to);
        low_[stage] = std::min(low_[stage], low_[to]);
      } else if (component_[to] == kUnresolved) {
        low_[stage] = std::min(low_[stage], order_[to]);
      }
    }
    if (low_[stage] != order_[stage]) return;
    for (std::size_t member = next_.size(); member != stage;) {
      member = open_.back();
      open_.pop_back();
      component_[member] = components_;
    }
    ++components_;
  }

  std::vector<std::vector<int>> next_;
  std::vector<int> order_, low_, component_;
  std::vector<std::size_t> open_;
  int clock_ = 0;
  int components_ = 0;
};

}  // namespace

int find_port(std::span<const PortInfo> ports, std::string_view name) noexcept {
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return static_cast<int>(i);
  }
  return kUnresolved;
}

PipelineGraph resolve_pipeline(const PipelineSpec& spec, StageInfos kinds) {
  PipelineGraph graph;
  std::map<std::string_view, int> index;
  for (const StageSpec& stage : spec.stages) {
    // Of two stages with one name the first counts; check_pipeline reports the second.
    index.emplace(stage.name, static_cast<int>(graph.infos.size()));
    graph.infos.push_back(find_kind(kinds, stage.kind));
  }
  const auto find_stage = [&](std::string_view name) {
    const auto found = index.find(name);
    return found == index.end() ? kUnresolved : found->second;
  };
  for (const EdgeSpec& edge : spec.edges) {
    ResolvedEdge resolved{.from_stage = find_stage(edge.from_stage), .to_stage = find_stage(edge.to_stage)};
    const auto info_of = [&](int stage) {
      return stage == kUnresolved ? nullptr : graph.infos[static_cast<std::size_t>(stage)];
    };
    if (const StageInfo* info = info_of(resolved.from_stage)) {
      resolved.from_port = find_port(info->outputs, edge.from_port);
    }
    if (const StageInfo* info = info_of(resolved.to_stage)) {
      resolved.to_port = find_port(info->inputs, edge.to_port);
    }
    graph.edges.push_back(resolved);
  }
  return graph;
}

std::vector<ArrivingState> arriving_states(const PipelineGraph& graph, std::size_t edge) {
  std::vector<ArrivingState> found;
  std::vector<bool> seen(graph.edges.size(), false);
  std::vector<std::size_t> open = {edge};
  while (!open.empty()) {
    const std::size_t at = open.back();
    open.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    const PortInfo& output = graph.output(graph.edges[at]);
    if (output.state != kSameState) {
      if (!output.state.empty()) found.push_back({output.state, at});
      continue;
    }
    for (std::size_t i = graph.edges.size(); i-- > 0;) {
      const ResolvedEdge& before = graph.edges[i];
      if (!before.complete() || before.to_stage != graph.edges[at].from_stage) continue;
      const PortInfo& input = graph.input(before);
      if (input.state == kSameState && input.type == output.type) open.push_back(i);
    }
  }
  return found;
}

std::vector<int> strong_components(const PipelineGraph& graph, bool with_feedback) {
  std::vector<std::vector<int>> next(graph.infos.size());
  for (const ResolvedEdge& edge : graph.edges) {
    if (!edge.complete() || (!with_feedback && graph.input(edge).feedback)) continue;
    next[static_cast<std::size_t>(edge.from_stage)].push_back(edge.to_stage);
  }
  return Components(std::move(next)).find();
}

}  // namespace colibri
