// A spec as text: effective values for people, the graph for Graphviz.
//
// The dump is itself a pipeline file: what somebody sees there can be pasted and run.
#include <algorithm>

#include "io/text/json_output.hpp"
#include "topology/cpu_list.hpp"
#include "topology/pipeline_graph.hpp"
#include "topology/pipeline_settings.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

std::string origin_text(const Origin& origin) {
  switch (origin.kind) {
    case Origin::Kind::default_value: return "default";
    case Origin::Kind::file: return place_text(origin);
    case Origin::Kind::environment: return "environment " + place_text(origin);
    case Origin::Kind::command_line: return "command line " + place_text(origin);
  }
  return "unknown";
}

// Text that could mean something else to YAML is quoted; JSON's quoting is YAML's too.
std::string yaml_value(const ParamInfo& info, std::string_view text) {
  if (info.type != ParamType::text) return std::string(text);
  std::string quoted;
  append_json_string(quoted, text);
  return quoted;
}

// "; here 2: why" when there is a note for the path.
std::string note_text(const ValueNotes& notes, std::string_view path) {
  const auto note = notes.find(path);
  return note == notes.end() ? "" : "; here " + note->second;
}

// The path of the value is `section` and its name.
void append_value(std::string& out, std::string_view section, std::string_view name, std::string_view value,
                  const Origin& origin, const ValueNotes& notes) {
  const std::string path =
      section.empty() ? std::string(name) : std::string(section) + "." + std::string(name);
  out.append(2 * static_cast<std::size_t>(std::count(path.begin(), path.end(), '.')), ' ');
  out.append(name).append(": ").append(value).append("  # ").append(origin_text(origin));
  out.append(note_text(notes, path)).append("\n");
}

std::string count_text(const std::optional<std::uint32_t>& count) {
  return count ? std::to_string(*count) : "auto";
}

// A stage of an unknown kind shows what all stages have; nobody knows the rest.
void append_stage(std::string& out, const StageSpec& stage, const StageInfo* info, const ValueNotes& notes) {
  const std::string path = "stages." + stage.name;
  out.append("  ").append(stage.name).append(":\n");
  append_value(out, path, "kind", stage.kind, stage.kind_origin, notes);
  append_value(out, path, "workers", count_text(stage.workers), stage.workers_origin, notes);
  append_value(out, path, "numa_node", count_text(stage.numa_node), stage.numa_node_origin, notes);
  append_value(out, path, "cpus", stage.cpus.empty() ? "auto" : format_cpu_list(stage.cpus),
               stage.cpus_origin, notes);
  if (info == nullptr) return;
  for (const std::span<const ParamInfo> params : {partition_params(*info), info->params}) {
    for (const ParamInfo& param : params) {
      const auto given = stage.params.find(std::string(param.name));
      append_value(out, path, param.name, yaml_value(param, effective_param(stage, *info, param.name)),
                   given == stage.params.end() ? Origin{} : given->second.second, notes);
    }
  }
}

std::string dot_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

std::string dump_pipeline(const PipelineSpec& spec, StageInfos kinds, const ValueNotes& notes) {
  std::string out =
      "# Effective values of pipeline " + quote_value(spec.name) + ", with the origin of each.\n";
  out += "version: " + std::to_string(kPipelineVersion) + "\n";
  std::string_view section;
  for (const SettingInfo& setting : pipeline_settings()) {
    if (setting.section != section) {
      section = setting.section;
      out.append(section).append(":\n");
    }
    const auto [value, origin] = setting.get(spec);
    append_value(out, section, setting.param.name, yaml_value(setting.param, value), origin, notes);
  }
  out += "stages:\n";
  for (const StageSpec& stage : spec.stages) append_stage(out, stage, find_kind(kinds, stage.kind), notes);
  out += "edges:\n";
  for (std::size_t i = 0; i < spec.edges.size(); ++i) {
    const EdgeSpec& edge = spec.edges[i];
    out += "  - {from: " + edge.from_stage + "." + edge.from_port + ", to: " + edge.to_stage + "." +
           edge.to_port + ", capacity: " + count_text(edge.capacity) + "}  # " + origin_text(edge.origin);
    if (!edge.capacity) out += "; capacity: default";
    out += note_text(notes, "edges[" + std::to_string(i) + "].capacity") + "\n";
  }
  return out;
}

std::string draw_pipeline_dot(const PipelineSpec& spec, StageInfos kinds) {
  const PipelineGraph graph = resolve_pipeline(spec, kinds);
  std::string out = "digraph " + dot_quoted(spec.name) + " {\n  rankdir=LR;\n  node [shape=box];\n";
  for (const StageSpec& stage : spec.stages) {
    std::string label = stage.kind == stage.name ? stage.name : stage.name + " (" + stage.kind + ")";
    if (const auto experts = stage.params.find("experts"); experts != stage.params.end()) {
      label += ", experts " + experts->second.first;
    }
    out += "  " + dot_quoted(stage.name) + " [label=" + dot_quoted(label) + "];\n";
  }
  for (std::size_t i = 0; i < spec.edges.size(); ++i) {
    const EdgeSpec& edge = spec.edges[i];
    std::string label =
        edge.from_port == edge.to_port ? edge.from_port : edge.from_port + " to " + edge.to_port;
    std::string style;
    if (graph.edges[i].complete()) {
      label += ": " + std::string(message_type_name(graph.output(graph.edges[i]).type));
      // A feedback edge must not turn the order of the stages around.
      if (graph.input(graph.edges[i]).feedback) style = ", style=dashed, constraint=false";
    } else {
      style = ", color=red";
    }
    if (edge.capacity) label += " (" + std::to_string(*edge.capacity) + ")";
    out += "  " + dot_quoted(edge.from_stage) + " -> " + dot_quoted(edge.to_stage) +
           " [label=" + dot_quoted(label) + style + "];\n";
  }
  return out + "}\n";
}

}  // namespace colibri
