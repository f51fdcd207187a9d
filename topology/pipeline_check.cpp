// check_pipeline: proves of a spec that its graph can run, or says all that is in the way.
//
// One mistake should give one line: ports that a mistyped edge probably meant are not
// reported as unconnected too, and what lies behind a reported stage is not called unreachable.
#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "io/text/nearest_name.hpp"
#include "topology/param_value.hpp"
#include "topology/pipeline_graph.hpp"
#include "topology/pipeline_spec.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

std::vector<std::string_view> port_names(std::span<const PortInfo> ports) {
  std::vector<std::string_view> names;
  for (const PortInfo& port : ports) names.push_back(port.name);
  return names;
}

// Steps of `check` build on each other: what earlier ones reported excuses later findings.
class GraphChecker {
 public:
  GraphChecker(const PipelineSpec& spec, StageInfos kinds, PipelineProblems& problems)
      : spec_(spec),
        kinds_(kinds),
        problems_(problems),
        graph_(resolve_pipeline(spec, kinds)),
        excused_inputs_(spec.stages.size(), false),
        excused_outputs_(spec.stages.size(), false),
        reported_(spec.stages.size(), false) {}

  void check() {
    check_stages();
    for (std::size_t i = 0; i < spec_.edges.size(); ++i) check_edge(i);
    check_connections();
    check_reachable();
    check_cycles();
    check_partitions(spec_, kinds_, 0, problems_);
  }

 private:
  static std::string edge_path(std::size_t edge) { return "edges[" + std::to_string(edge) + "]"; }
  static std::string from_text(const EdgeSpec& edge) { return edge.from_stage + "." + edge.from_port; }
  static std::string to_text(const EdgeSpec& edge) { return edge.to_stage + "." + edge.to_port; }

  void check_stages() {
    if (spec_.stages.size() > kMaximumStages || spec_.edges.size() > kMaximumEdges) {
      problems_.add({}, "",
                    "pipeline is too large; expected at most " + std::to_string(kMaximumStages) +
                        " stages and " + std::to_string(kMaximumEdges) + " edges");
    }
    std::set<std::string_view> names;
    bool all_known = true, has_source = false;
    for (std::size_t i = 0; i < spec_.stages.size(); ++i) {
      const StageSpec& stage = spec_.stages[i];
      const std::string path = "stages." + stage.name;
      if (!names.insert(stage.name).second) {
        problems_.add(stage.origin, path, "duplicate stage; expected each name once");
      }
      if (graph_.infos[i] == nullptr) {
        all_known = false;
        reported_[i] = true;
        // A stage without a readable kind was reported when the file was read.
        if (!stage.kind.empty() || problems_.lines.empty()) {
          problems_.add(stage.kind_origin, path + ".kind", unknown_kind_text(stage.kind, kinds_));
        }
      } else {
        has_source |= graph_.infos[i]->source;
        check_given(stage, *graph_.infos[i]);
      }
    }
    if (all_known && !has_source) report_no_source();
  }

  // What must be given, and files that two stages would write. Values themselves were checked when the file
  // was read.
  void check_given(const StageSpec& stage, const StageInfo& info) {
    for (const ParamInfo& param : info.params) {
      const std::string path = "stages." + stage.name + "." + std::string(param.name);
      const auto given = stage.params.find(std::string(param.name));
      if (given == stage.params.end()) {
        if (param.required) {
          problems_.add(stage.origin, path, "value is missing; expected " + expected_text(param));
        }
        continue;
      }
      const auto& [text, origin] = given->second;
      if (param.unit != kOutputFileUnit || text.empty()) continue;
      const auto [first, added] = written_.emplace(text, path);
      if (!added) {
        problems_.add(
            origin, path,
            quote_value(text) + " is written by " + first->second + " too; expected a file of its own");
      }
    }
  }

  void report_no_source() {
    std::vector<std::string_view> sources;
    for (const StageInfo* info : kinds_) {
      if (info->source) sources.push_back(info->kind);
    }
    const std::string what =
        spec_.stages.empty() ? "pipeline has no stages" : "no stage is a source of messages";
    // A file without a readable `stages` already has its problems.
    if (spec_.stages.empty() && !problems_.lines.empty()) return;
    problems_.add(spec_.stages.empty() ? Origin{Origin::Kind::file, spec_.name} : spec_.stages.front().origin,
                  "stages", what + "; expected at least one of kind " + join_names(sources));
  }

  // One end of an edge: the stage, then its port on the given side.
  void check_end(std::size_t edge, bool from) {
    const EdgeSpec& spec = spec_.edges[edge];
    const ResolvedEdge& resolved = graph_.edges[edge];
    const std::string& stage_name = from ? spec.from_stage : spec.to_stage;
    const std::string& port_name = from ? spec.from_port : spec.to_port;
    const Origin& origin = from ? spec.from_origin : spec.to_origin;
    const std::string path = edge_path(edge) + (from ? ".from" : ".to");
    const int stage = from ? resolved.from_stage : resolved.to_stage;
    std::vector<bool>& excused = from ? excused_outputs_ : excused_inputs_;
    if (stage_name.empty() && port_name.empty()) {
      // The file's reader said so. Which stage was meant is unknown, so none is blamed.
      std::fill(excused.begin(), excused.end(), true);
      return;
    }
    if (stage == kUnresolved) {
      std::vector<std::string_view> names;
      for (const StageSpec& other : spec_.stages) names.push_back(other.name);
      const std::string_view nearest = nearest_name(stage_name, names);
      problems_.add(origin, path,
                    "no stage " + quote_value(stage_name) + "; expected one of " + join_names(names) +
                        suggest_name(stage_name, names));
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == nearest) excused[i] = true;
      }
      return;
    }
    const auto index = static_cast<std::size_t>(stage);
    const StageInfo* info = graph_.infos[index];
    if (info == nullptr || (from ? resolved.from_port : resolved.to_port) != kUnresolved) return;
    excused[index] = true;
    const std::vector<std::string_view> names = port_names(from ? info->outputs : info->inputs);
    const std::string side = from ? "output" : "input";
    const bool other_side = find_port(from ? info->inputs : info->outputs, port_name) != kUnresolved;
    std::string what = "stage " + quote_value(stage_name) + " of kind " + std::string(info->kind) +
                       " has no " + side + " " + quote_value(port_name);
    if (other_side) what += ", which is an " + std::string(from ? "input" : "output");
    what += names.empty() ? "; expected another stage, this one has no " + side + "s"
                          : "; expected one of " + join_names(names);
    problems_.add(origin, path, what + suggest_name(port_name, names));
  }

  // Names at both ends, capacity (specs made in code were not checked by the parser), types.
  void check_edge(std::size_t i) {
    check_end(i, true);
    check_end(i, false);
    const EdgeSpec& edge = spec_.edges[i];
    if (edge.capacity && (*edge.capacity == 0 || *edge.capacity > kMaximumEdgeCapacity)) {
      problems_.add(edge.capacity_origin, edge_path(i) + ".capacity",
                    quote_value(std::to_string(*edge.capacity)) +
                        " is out of range; expected an integer from 1 to " +
                        std::to_string(kMaximumEdgeCapacity) + " messages, or auto");
    }
    if (!graph_.edges[i].complete()) return;
    const MessageType sent = graph_.output(graph_.edges[i]).type;
    const MessageType taken = graph_.input(graph_.edges[i]).type;
    if (sent != taken) {
      problems_.add(edge.origin, edge_path(i),
                    from_text(edge) + " sends " + std::string(message_type_name(sent)) + " but " +
                        to_text(edge) + " takes " + std::string(message_type_name(taken)) +
                        "; expected ports of one type");
    }
    if (sent == taken) check_states(i);
  }

  // "attend.routed sends a wave that is attended", or "tap.waves sends, from attend.routed, a wave that ..."
  std::string sends_text(std::size_t edge, const ArrivingState& arriving) const {
    std::string text = from_text(spec_.edges[edge]) + " sends ";
    if (arriving.edge != edge)
      text = from_text(spec_.edges[edge]) + " sends, from " + from_text(spec_.edges[arriving.edge]) + ", ";
    return text + "a " + std::string(message_type_name(graph_.output(graph_.edges[edge]).type)) +
           " that is " + std::string(arriving.state);
  }

  void check_states(std::size_t i) {
    const EdgeSpec& edge = spec_.edges[i];
    const std::string_view taken = graph_.input(graph_.edges[i]).state;
    if (taken.empty()) return;
    for (const ArrivingState& arriving : arriving_states(graph_, i)) {
      if (taken == kSameState) {
        check_state_needs(i, arriving);
      } else if (arriving.state != taken) {
        problems_.add(edge.origin, edge_path(i),
                      sends_text(i, arriving) + " but " + to_text(edge) + " takes one that is " +
                          std::string(taken) + "; expected ports of one state");
        return;
      }
    }
  }

  // What arrives at a stage that takes any state must suit the values of its parameters.
  void check_state_needs(std::size_t edge, const ArrivingState& arriving) {
    const auto index = static_cast<std::size_t>(graph_.edges[edge].to_stage);
    const StageSpec& stage = spec_.stages[index];
    for (const StateNeed& need : graph_.infos[index]->state_needs) {
      if (effective_param(stage, *graph_.infos[index], need.param) != need.value) continue;
      const std::vector<std::string_view> states = split_choices(need.states);
      if (std::find(states.begin(), states.end(), arriving.state) != states.end()) continue;
      const auto given = stage.params.find(std::string(need.param));
      problems_.add(given == stage.params.end() ? stage.origin : given->second.second,
                    "stages." + stage.name + "." + std::string(need.param),
                    quote_value(need.value) + " cannot be had here: " + sends_text(edge, arriving) +
                        "; expected one that is any of " + join_names(states) + ", or another value");
    }
  }

  // Each output has one edge unless it is by_expert (see check_partitions), each input one unless it takes
  // many, each required port at least one.
  void check_connections() {
    // First edge of each port, by (stage, port).
    std::map<std::pair<int, int>, std::size_t> sending, receiving;
    for (std::size_t i = 0; i < graph_.edges.size(); ++i) {
      const ResolvedEdge& edge = graph_.edges[i];
      if (edge.from_port != kUnresolved) {
        const auto [first, added] = sending.emplace(std::pair(edge.from_stage, edge.from_port), i);
        const StageInfo* info = graph_.infos[static_cast<std::size_t>(edge.from_stage)];
        if (!added && !info->outputs[static_cast<std::size_t>(edge.from_port)].by_expert) {
          problems_.add(spec_.edges[i].from_origin, edge_path(i) + ".from",
                        "output " + from_text(spec_.edges[i]) + " is connected twice, first by " +
                            edge_path(first->second) + "; expected one edge an output");
        }
      }
      if (edge.to_port == kUnresolved) continue;
      const auto [first, added] = receiving.emplace(std::pair(edge.to_stage, edge.to_port), i);
      const StageInfo* info = graph_.infos[static_cast<std::size_t>(edge.to_stage)];
      if (!added && !info->inputs[static_cast<std::size_t>(edge.to_port)].many) {
        problems_.add(spec_.edges[i].to_origin, edge_path(i) + ".to",
                      "input " + to_text(spec_.edges[i]) + " is fed twice, first by " +
                          edge_path(first->second) + "; expected one edge an input");
      }
    }
    for (std::size_t i = 0; i < graph_.infos.size(); ++i) {
      if (graph_.infos[i] == nullptr) continue;
      report_unconnected(i, graph_.infos[i]->inputs, true, receiving);
      report_unconnected(i, graph_.infos[i]->outputs, false, sending);
    }
  }

  void report_unconnected(std::size_t stage, std::span<const PortInfo> ports, bool input,
                          const std::map<std::pair<int, int>, std::size_t>& connected) {
    const std::string& name = spec_.stages[stage].name;
    for (std::size_t port = 0; port < ports.size(); ++port) {
      if (!ports[port].required || connected.contains({static_cast<int>(stage), static_cast<int>(port)}))
        continue;
      reported_[stage] = true;
      if ((input ? excused_inputs_ : excused_outputs_)[stage]) continue;
      problems_.add(spec_.stages[stage].origin, "stages." + name,
                    std::string(input ? "input " : "output ") + quote_value(ports[port].name) +
                        " is not connected; expected an edge " + (input ? "to " : "from ") + name + "." +
                        std::string(ports[port].name) + " that carries " +
                        std::string(message_type_name(ports[port].type)));
    }
  }

  void check_reachable() {
    // An edge without a known end may have led anywhere.
    for (const ResolvedEdge& edge : graph_.edges) {
      if (edge.from_stage == kUnresolved || edge.to_stage == kUnresolved) return;
    }
    // Breadth first over all edges, feedback too: a wave that comes back does reach its stage. Reported
    // stages count as reached, since what is wrong with them may be all that keeps messages from what
    // follows.
    std::vector<bool> reached(spec_.stages.size(), false);
    std::deque<std::size_t> waiting;
    bool has_source = false;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      const bool source = graph_.infos[i] != nullptr && graph_.infos[i]->source;
      has_source |= source;
      if (!source && !reported_[i]) continue;
      reached[i] = true;
      waiting.push_back(i);
    }
    if (!has_source) return;
    for (; !waiting.empty(); waiting.pop_front()) {
      for (const ResolvedEdge& edge : graph_.edges) {
        if (edge.from_stage != static_cast<int>(waiting.front())) continue;
        const auto to = static_cast<std::size_t>(edge.to_stage);
        if (reached[to]) continue;
        reached[to] = true;
        waiting.push_back(to);
      }
    }
    for (std::size_t i = 0; i < reached.size(); ++i) {
      if (reached[i]) continue;
      problems_.add(spec_.stages[i].origin, "stages." + spec_.stages[i].name,
                    "no message can reach this stage; expected a way along edges from a source");
    }
  }

  // One cycle of each component that stays when feedback edges are taken away.
  void check_cycles() {
    const std::vector<int> components = strong_components(graph_, false);
    std::set<int> reported;
    for (std::size_t i = 0; i < graph_.edges.size(); ++i) {
      const ResolvedEdge& edge = graph_.edges[i];
      if (!edge.complete() || graph_.input(edge).feedback) continue;
      const int component = components[static_cast<std::size_t>(edge.from_stage)];
      if (component != components[static_cast<std::size_t>(edge.to_stage)]) continue;
      if (!reported.insert(component).second) continue;
      problems_.add(spec_.edges[i].origin, edge_path(i),
                    "cycle without a feedback input: " + cycle_text(i, components) +
                        "; expected one of these edges to end at an input that is marked feedback");
    }
  }

  // The shortest way from the edge's end back to its start, inside the component.
  std::string cycle_text(std::size_t first, const std::vector<int>& components) const {
    const int goal = graph_.edges[first].from_stage;
    const int start = graph_.edges[first].to_stage;
    std::map<int, std::size_t> came_by;  // stage -> edge
    std::deque<int> waiting = {start};
    while (!waiting.empty() && goal != start && !came_by.contains(goal)) {
      const int stage = waiting.front();
      waiting.pop_front();
      for (std::size_t i = 0; i < graph_.edges.size(); ++i) {
        const ResolvedEdge& edge = graph_.edges[i];
        if (!edge.complete() || edge.from_stage != stage || graph_.input(edge).feedback ||
            edge.to_stage == start ||
            components[static_cast<std::size_t>(edge.to_stage)] !=
                components[static_cast<std::size_t>(goal)]) {
          continue;
        }
        if (came_by.emplace(edge.to_stage, i).second) waiting.push_back(edge.to_stage);
      }
    }
    // Walked from the goal back to the start, hence printed in reverse.
    std::vector<std::size_t> way;
    for (int stage = goal; stage != start;) {
      const std::size_t edge = came_by.at(stage);
      way.push_back(edge);
      stage = graph_.edges[edge].from_stage;
    }
    way.push_back(first);
    std::string text;
    for (auto edge = way.rbegin(); edge != way.rend(); ++edge) {
      if (!text.empty()) text += ", ";
      text += from_text(spec_.edges[*edge]) + " -> " + to_text(spec_.edges[*edge]);
    }
    return text;
  }

  const PipelineSpec& spec_;
  StageInfos kinds_;
  PipelineProblems& problems_;
  PipelineGraph graph_;
  // Stages whose unconnected inputs or outputs a wrong edge explains.
  std::vector<bool> excused_inputs_, excused_outputs_;
  std::map<std::string, std::string> written_;  // file -> path of the value that names it
  std::vector<bool> reported_;                  // stages that something is known to be wrong with
};

}  // namespace

void check_pipeline(const PipelineSpec& spec, StageInfos kinds, PipelineProblems& problems) {
  GraphChecker(spec, kinds, problems).check();
}

void check_edge_capacities(const PipelineSpec& spec, StageInfos kinds, const MessageCredits& credits,
                           PipelineProblems& problems) {
  const PipelineGraph graph = resolve_pipeline(spec, kinds);
  // An edge lies on a cycle exactly when both its ends are in one component.
  const std::vector<int> components = strong_components(graph, true);
  for (std::size_t i = 0; i < graph.edges.size(); ++i) {
    const ResolvedEdge& edge = graph.edges[i];
    if (!edge.complete()) continue;
    const MessageType type = graph.output(edge).type;
    const std::uint32_t needed = credits[static_cast<std::size_t>(type)];
    const bool on_cycle = components[static_cast<std::size_t>(edge.from_stage)] ==
                          components[static_cast<std::size_t>(edge.to_stage)];
    if (!on_cycle || needed == 0) continue;
    const std::string path = "edges[" + std::to_string(i) + "]";
    const std::string circulate = std::to_string(needed) + " messages of type " +
                                  std::string(message_type_name(type)) + " that can circulate";
    if (spec.edges[i].capacity && *spec.edges[i].capacity < needed) {
      problems.add(spec.edges[i].capacity_origin, path + ".capacity",
                   quote_value(std::to_string(*spec.edges[i].capacity)) + " is less than the " + circulate +
                       "; expected at least " + std::to_string(needed) + ", or auto");
    }
  }
}

}  // namespace colibri
