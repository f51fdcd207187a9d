// The tree of a config file, with overrides, to a PipelineSpec.
//
// Nothing stops at the first problem: each part is read on its own, and what is wrong in one
// leaves a default there. Stages and edges are kept even when parts of them are wrong, so that
// indices in messages follow the file and one mistake does not turn into several.
#include <algorithm>
#include <filesystem>

#include "topology/cpu_list.hpp"
#include "topology/expert_partition.hpp"
#include "topology/param_value.hpp"
#include "topology/pipeline_override.hpp"
#include "topology/pipeline_settings.hpp"
#include "topology/pipeline_spec.hpp"
#include "topology/problem_text.hpp"
#include "topology/yaml_tree.hpp"
#include "topology/yaml_values.hpp"

namespace colibri {
namespace {

constexpr std::size_t kMaximumNameLength = 64;

bool valid_stage_name(std::string_view name) {
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && name.size() <= kMaximumNameLength && letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_'; });
}

// Reads the tree once, from the top; the spec is filled on the way.
class PipelineReader {
 public:
  PipelineReader(StageInfos kinds, PipelineSpec& spec, PipelineProblems& problems)
      : kinds_(kinds), spec_(spec), problems_(problems), values_(problems) {}

  void read(const YamlNode& root) {
    if (!values_.is_map(root, root.origin, "", "a map with version, stages and edges")) return;
    bool has_version = false;
    for (const YamlEntry& entry : root.entries) {
      if (entry.key == "version") {
        has_version = true;
        read_version(entry);
      } else if (entry.key == "stages") {
        read_stages(entry);
      } else if (entry.key == "edges") {
        read_edges(entry);
      } else if (const SettingInfo* setting = find_setting("", entry.key)) {
        read_setting(*setting, entry);
      } else if (is_section(entry.key)) {
        read_section(entry);
      } else {
        values_.unknown_key(entry, entry.key, top_level_keys());
      }
    }
    if (!has_version) {
      problems_.add(root.origin, "version", "version is missing; expected version: 1 in the first line");
    }
  }

 private:
  static const SettingInfo* find_setting(std::string_view section, std::string_view name) {
    for (const SettingInfo& setting : pipeline_settings()) {
      if (setting.section == section && setting.param.name == name) return &setting;
    }
    return nullptr;
  }

  static bool is_section(std::string_view name) {
    return std::any_of(
        pipeline_settings().begin(), pipeline_settings().end(),
        [&](const SettingInfo& setting) { return !setting.section.empty() && setting.section == name; });
  }

  void read_version(const YamlEntry& entry) {
    const ParamInfo info{.name = "version",
                         .type = ParamType::integer,
                         .minimum = static_cast<double>(kPipelineVersion),
                         .maximum = static_cast<double>(kPipelineVersion)};
    if (!values_.is_value(entry, info, "version", "1")) return;
    if (!read_param(info, entry.value.text)) {
      problems_.add(entry.value.origin, "version",
                    quote_value(entry.value.text) + " is not a version that this program reads; expected 1");
    }
  }

  void read_setting(const SettingInfo& setting, const YamlEntry& entry) {
    const std::string path = setting.path();
    if (!values_.is_value(entry, setting.param, path, setting.expected())) return;
    if (const Status status = setting.set(setting, entry.value.text, entry.value.origin, spec_); !status) {
      problems_.add(entry.value.origin, path, status.message());
    }
  }

  void read_section(const YamlEntry& section) {
    std::vector<std::string_view> names;
    for (const SettingInfo& setting : pipeline_settings()) {
      if (setting.section == section.key) names.push_back(setting.param.name);
    }
    if (!values_.is_map(section.value, section.key_origin, section.key,
                        "a map with any of " + join_names(names)))
      return;
    for (const YamlEntry& entry : section.value.entries) {
      if (const SettingInfo* setting = find_setting(section.key, entry.key)) {
        read_setting(*setting, entry);
      } else {
        values_.unknown_key(entry, section.key + "." + entry.key, names);
      }
    }
  }

  void read_stages(const YamlEntry& stages) {
    if (!values_.is_map(stages.value, stages.key_origin, "stages", "a map of stage names")) return;
    if (stages.value.entries.size() > kMaximumStages) {
      problems_.add(stages.key_origin, "stages",
                    "too many stages; expected at most " + std::to_string(kMaximumStages) + ", found " +
                        std::to_string(stages.value.entries.size()));
      return;
    }
    for (const YamlEntry& entry : stages.value.entries) read_stage(entry);
  }

  void read_stage(const YamlEntry& entry) {
    const std::string path = "stages." + entry.key;
    if (!valid_stage_name(entry.key)) {
      problems_.add(entry.key_origin, path,
                    "stage name is not usable; expected at most 64 of a-z, 0-9 and _, with a letter first");
    }
    StageSpec stage;
    stage.name = entry.key;
    stage.origin = stage.kind_origin = entry.key_origin;
    if (values_.is_map(entry.value, entry.key_origin, path, "a map with kind and the kind's parameters")) {
      read_stage_keys(entry.value, path, stage);
    }
    // Kept even when wrong: edges that name it are then not wrong as well.
    spec_.stages.push_back(std::move(stage));
  }

  void read_stage_keys(const YamlNode& node, const std::string& path, StageSpec& stage) {
    const YamlEntry* kind = node.find("kind");
    bool kind_readable = kind == nullptr;
    if (kind != nullptr && kind->value.kind == YamlNode::Kind::scalar) {
      stage.kind = kind->value.text;
      stage.kind_origin = kind->value.origin;
      kind_readable = true;
    } else if (kind != nullptr) {
      values_.wrong_type(kind->value, kind->key_origin, path + ".kind",
                         "one of " + join_names(kind_names(kinds_)));
    }
    const StageInfo* info = find_kind(kinds_, stage.kind);
    if (info == nullptr && kind_readable) {
      problems_.add(stage.kind_origin, path + ".kind", unknown_kind_text(stage.kind, kinds_));
    }
    std::vector<std::string_view> names = {"kind"};
    for (const ParamInfo& param : common_stage_params()) names.push_back(param.name);
    if (info != nullptr) {
      for (const ParamInfo& param : partition_params(*info)) names.push_back(param.name);
      for (const ParamInfo& param : info->params) names.push_back(param.name);
    }
    for (const YamlEntry& entry : node.entries) {
      const std::string key_path = path + "." + entry.key;
      if (entry.key == "kind") continue;
      if (const ParamInfo* common = find_param(common_stage_params(), entry.key)) {
        read_common_param(*common, entry, key_path, stage);
      } else if (info == nullptr) {
        continue;  // nobody knows the parameters of an unknown kind
      } else if (const ParamInfo* experts = find_param(partition_params(*info), entry.key)) {
        read_experts(*experts, entry, key_path, stage);
      } else if (const ParamInfo* param = find_param(info->params, entry.key)) {
        read_kind_param(*param, entry, key_path, stage);
      } else {
        values_.unknown_key(entry, key_path, names);
      }
    }
    if (stage.numa_node && !stage.cpus.empty()) {
      problems_.add(stage.cpus_origin, path + ".cpus",
                    "cpus and numa_node are both given; expected one of them, since each names the place");
    }
  }

  void read_common_param(const ParamInfo& info, const YamlEntry& entry, const std::string& path,
                         StageSpec& stage) {
    if (info.name == "cpus") {
      read_cpus(info, entry, path, stage);
      return;
    }
    const std::optional<ParamValue> value = values_.read_value(entry, info, path);
    if (!value) return;
    const bool workers = info.name == "workers";
    (workers ? stage.workers_origin : stage.numa_node_origin) = entry.value.origin;
    if (value->is_auto) return;
    (workers ? stage.workers : stage.numa_node) = static_cast<std::uint32_t>(value->integer);
  }

  void read_kind_param(const ParamInfo& info, const YamlEntry& entry, const std::string& path,
                       StageSpec& stage) {
    // Kept even when wrong: it is then not missing as well.
    std::string& text = stage.params[entry.key].first;
    stage.params[entry.key].second = entry.value.origin;
    if (info.unit == kLayerListUnit && entry.value.kind == YamlNode::Kind::sequence) {
      const std::optional<std::string> list = read_list(info, entry, path, "a layer's number");
      if (!list) return;
      text = *list;
      if (const auto value = read_param(info, text); !value) {
        problems_.add(entry.value.origin, path, value.status().message());
      }
    } else if (values_.read_value(entry, info, path)) {
      text = entry.value.text;
    }
  }

  // A list of values, or the text form of one; nullopt, and reported, when it is neither.
  std::optional<std::string> read_list(const ParamInfo& info, const YamlEntry& entry, const std::string& path,
                                       std::string_view item_text) {
    if (entry.value.kind != YamlNode::Kind::sequence) {
      if (!values_.is_value(entry, info, path, expected_text(info))) return std::nullopt;
      return entry.value.text;
    }
    std::string text;
    for (const YamlNode& item : entry.value.items) {
      if (item.kind != YamlNode::Kind::scalar) {
        values_.wrong_type(item, entry.key_origin, path, item_text);
        return std::nullopt;
      }
      text += (text.empty() ? "" : ",") + item.text;
    }
    return text;
  }

  void read_experts(const ParamInfo& info, const YamlEntry& entry, const std::string& path,
                    StageSpec& stage) {
    const std::optional<std::string> text = read_list(info, entry, path, "an expert's id");
    // Kept even when wrong: whether all experts have a stage is then not asked.
    stage.params[entry.key] = {text.value_or(""), entry.value.origin};
    if (!text) return;
    if (const auto read = ExpertPartition::parse(*text); !read) {
      problems_.add(entry.value.origin, path, read.status().message());
    }
  }

  void read_cpus(const ParamInfo& info, const YamlEntry& entry, const std::string& path, StageSpec& stage) {
    const std::optional<std::string> text = read_list(info, entry, path, "a CPU number");
    if (!text) return;
    stage.cpus_origin = entry.value.origin;
    if (*text == "auto") return;
    Result<std::vector<std::uint32_t>> cpus = parse_cpu_list(*text);
    if (!cpus) {
      problems_.add(entry.value.origin, path, cpus.status().message());
      return;
    }
    stage.cpus = std::move(*cpus);
  }

  void read_edges(const YamlEntry& edges) {
    if (edges.value.kind != YamlNode::Kind::sequence) {
      return values_.wrong_type(edges.value, edges.key_origin, "edges", "a list of edges with from and to");
    }
    for (std::size_t i = 0; i < edges.value.items.size(); ++i) {
      const YamlNode& item = edges.value.items[i];
      const std::string path = "edges[" + std::to_string(i) + "]";
      EdgeSpec edge;
      edge.origin = edge.from_origin = edge.to_origin = edge.capacity_origin =
          item.kind == YamlNode::Kind::empty ? edges.key_origin : item.origin;
      if (values_.is_map(item, edges.key_origin, path, "a map with from, to and perhaps capacity")) {
        read_edge(item, path, edge);
      }
      // Kept even when wrong, so that problems of the graph count edges as the file does.
      spec_.edges.push_back(std::move(edge));
    }
  }

  void read_edge(const YamlNode& node, const std::string& path, EdgeSpec& edge) {
    std::vector<std::string_view> names;
    for (const ParamInfo& param : edge_params()) names.push_back(param.name);
    for (const YamlEntry& entry : node.entries) {
      const std::string key_path = path + "." + entry.key;
      const ParamInfo* param = find_param(edge_params(), entry.key);
      if (param == nullptr) {
        values_.unknown_key(entry, key_path, names);
      } else if (param->name == "capacity") {
        const std::optional<ParamValue> value = values_.read_value(entry, *param, key_path);
        if (!value) continue;
        edge.capacity_origin = entry.value.origin;
        if (!value->is_auto) edge.capacity = static_cast<std::uint32_t>(value->integer);
      } else {
        const bool from = param->name == "from";
        (from ? edge.from_origin : edge.to_origin) = entry.value.origin;
        read_end(entry, *param, key_path, from ? edge.from_stage : edge.to_stage,
                 from ? edge.from_port : edge.to_port);
      }
    }
    for (const std::string_view end : {"from", "to"}) {
      if (node.find(end) == nullptr) {
        problems_.add(node.origin, path + "." + std::string(end),
                      std::string(end) + " is missing; expected " + std::string(end) + ": stage.port");
      }
    }
  }

  void read_end(const YamlEntry& entry, const ParamInfo& info, const std::string& path, std::string& stage,
                std::string& port) {
    const std::string expected = "stage.port, such as route.waves";
    if (!values_.is_value(entry, info, path, expected)) return;
    const std::string& text = entry.value.text;
    const std::size_t dot = text.find('.');
    if (dot == 0 || dot == std::string::npos || dot + 1 == text.size() ||
        text.find('.', dot + 1) != std::string::npos) {
      problems_.add(entry.value.origin, path, quote_value(text) + " is not a port; expected " + expected);
      return;
    }
    stage = text.substr(0, dot);
    port = text.substr(dot + 1);
  }

  StageInfos kinds_;
  PipelineSpec& spec_;
  PipelineProblems& problems_;
  YamlValues values_;
};

}  // namespace

PipelineSpec parse_pipeline(std::string_view yaml, std::string_view file_name, StageInfos kinds,
                            std::span<const Override> overrides, PipelineProblems& problems) {
  PipelineSpec spec;
  spec.name = std::string(file_name);
  YamlNode root;
  if (!parse_yaml_tree(yaml, file_name, root, problems)) return spec;
  if (root.kind == YamlNode::Kind::empty) {
    problems.add(Origin{Origin::Kind::file, spec.name, 1, 1}, "",
                 "file is empty; expected a map with version, stages and edges");
    return spec;
  }
  if (root.kind == YamlNode::Kind::map) apply_overrides(root, kinds, overrides, problems);
  PipelineReader(kinds, spec, problems).read(root);
  return spec;
}

std::string model_path(const PipelineSpec& spec) {
  const std::filesystem::path path(spec.model);
  if (spec.model.empty() || spec.model_origin.kind != Origin::Kind::file || path.is_absolute())
    return spec.model;
  return (std::filesystem::path(spec.model_origin.file).parent_path() / path).lexically_normal().string();
}

std::string_view effective_param(const StageSpec& stage, const StageInfo& info, std::string_view name) {
  if (const auto given = stage.params.find(std::string(name)); given != stage.params.end()) {
    return given->second.first;
  }
  const ParamInfo* param = find_param(info.params, name);
  if (param == nullptr) param = find_param(partition_params(info), name);
  return param == nullptr ? std::string_view() : param->default_value;
}

}  // namespace colibri
