// Overrides: their paths, and COLIBRI_* variables.
//
// A variable does not say where a stage's name ends (COLIBRI_STAGES_ROUTE_NODE0_MODE), so its
// path keeps the underscores ("stages.route_node0_mode") until the stages of the file are known.
#include "topology/pipeline_override.hpp"

#include <algorithm>
#include <set>

#include "io/text/nearest_name.hpp"
#include "io/text/utf8.hpp"
#include "topology/pipeline_settings.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

constexpr std::string_view kPrefix = "COLIBRI_";
// Variables of ours that are no settings of a pipeline: the kernels' choice, and what building and testing
// take. Any other is a mistake, since a value that somebody set would have no effect.
constexpr std::string_view kOtherVariables[] = {"KERNELS", "JOBS"};
constexpr std::string_view kOtherSections[] = {"TEST_", "SETUP_"};

bool is_other_variable(std::string_view name) {
  name.remove_prefix(kPrefix.size());
  return std::find(std::begin(kOtherVariables), std::end(kOtherVariables), name) !=
             std::end(kOtherVariables) ||
         std::any_of(std::begin(kOtherSections), std::end(kOtherSections),
                     [&](std::string_view section) { return name.starts_with(section); });
}

// "stages.fetch.lanes" -> "COLIBRI_STAGES_FETCH_LANES"
std::string variable_of(std::string_view path) {
  std::string name(kPrefix);
  for (const char c : path) {
    name += c == '.' ? '_' : (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  }
  return name;
}

// Every path that can be set in this file, with the documented settings first.
std::vector<std::string> settable_paths(const YamlNode& root, StageInfos kinds) {
  std::vector<std::string> paths;
  for (const SettingInfo& setting : pipeline_settings()) paths.push_back(setting.path());
  const YamlEntry* stages = root.find("stages");
  if (stages == nullptr) return paths;
  for (const YamlEntry& stage : stages->value.entries) {
    const std::string prefix = "stages." + stage.key + ".";
    paths.push_back(prefix + "kind");
    for (const ParamInfo& param : common_stage_params()) paths.push_back(prefix + std::string(param.name));
    const YamlEntry* kind = stage.value.find("kind");
    const StageInfo* info = kind == nullptr ? nullptr : find_kind(kinds, kind->value.text);
    if (info == nullptr) continue;  // reported with the file
    for (const ParamInfo& param : partition_params(*info)) paths.push_back(prefix + std::string(param.name));
    for (const ParamInfo& param : info->params) paths.push_back(prefix + std::string(param.name));
  }
  return paths;
}

// The value at a path that is known to be settable; null when a section of it is no map, which is
// reported with the file.
YamlNode* node_at_path(YamlNode& root, std::string_view path, const Origin& origin) {
  YamlNode* node = &root;
  for (;;) {
    if (node->kind == YamlNode::Kind::empty) node->kind = YamlNode::Kind::map;
    if (node->kind != YamlNode::Kind::map) return nullptr;
    const std::size_t dot = path.find('.');
    const std::string key(path.substr(0, dot));
    YamlEntry* entry = node->find(key);
    if (entry == nullptr) {
      node->entries.push_back({key, origin, {}});
      entry = &node->entries.back();
      entry->value.origin = origin;
    }
    if (dot == std::string_view::npos) return &entry->value;
    node = &entry->value;
    path.remove_prefix(dot + 1);
  }
}

std::set<std::string_view> words_of(std::string_view name) {
  std::set<std::string_view> words;
  for (std::size_t underscore; (underscore = name.find('_')) != std::string_view::npos;) {
    words.insert(name.substr(0, underscore));
    name.remove_prefix(underscore + 1);
  }
  words.insert(name);
  return words;
}

// The nearest in letters; else the first that has all words of the name, as MAX_ROWS and EXPERTS_MEMORY, by
// which the flags are called.
std::string_view meant_name(std::string_view found, std::span<const std::string_view> names) {
  const std::string_view nearest = nearest_name(found, names);
  if (!nearest.empty()) return nearest;
  const std::set<std::string_view> wanted = words_of(found);
  if (wanted.contains("STAGES")) return {};  // it would name any parameter of any stage
  for (const std::string_view name : names) {
    const std::set<std::string_view> words = words_of(name);
    if (std::includes(words.begin(), words.end(), wanted.begin(), wanted.end())) return name;
  }
  return {};
}

// "fetch" of "stages.fetch.lanes"; empty when the path is no parameter of a stage.
std::string_view stage_of(std::string_view path) {
  constexpr std::string_view kStages = "stages.";
  if (!path.starts_with(kStages)) return {};
  path.remove_prefix(kStages.size());
  const std::size_t dot = path.find('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

// The stages that the paths name, each once.
std::vector<std::string_view> stages_of(const std::vector<std::string>& paths) {
  std::vector<std::string_view> stages;
  for (const std::string& path : paths) {
    const std::string_view stage = stage_of(path);
    if (!stage.empty() && (stages.empty() || stages.back() != stage)) stages.push_back(stage);
  }
  return stages;
}

void report_unknown(const Override& override, bool from_variable, const std::vector<std::string>& paths,
                    PipelineProblems& problems) {
  if (override.path.starts_with("edges.") || override.path == "edges") {
    problems.add(override.origin, from_variable ? "" : override.path,
                 "edges cannot be set from outside; expected them in the file");
    return;
  }
  const std::string wanted = from_variable ? override.origin.file : override.path;
  if (first_invalid_utf8(wanted)) {
    problems.add(override.origin, "",
                 "the name " + quote_value(wanted) + " is not UTF-8; expected a setting");
    return;
  }
  // Compared without what all candidates share: a long prefix would make every name look near.
  std::string prefix = from_variable ? variable_of("stages.") : "stages.";
  if (!wanted.starts_with(prefix)) prefix = from_variable ? kPrefix : "";
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    const std::string name = from_variable ? variable_of(path) : path;
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string_view nearest = meant_name(std::string_view(wanted).substr(prefix.size()), views);
  const std::string example = from_variable ? "COLIBRI_MEMORY_EXPERTS or COLIBRI_STAGES_<NAME>_<PARAMETER>"
                                            : "memory.experts or stages.<name>.<parameter>";
  std::string what = "unknown setting; expected one such as " + example;
  const std::string_view stage = from_variable ? std::string_view() : stage_of(wanted);
  const std::vector<std::string_view> stages = stages_of(paths);
  if (nearest.empty() && !stage.empty() && std::find(stages.begin(), stages.end(), stage) == stages.end())
    what = "no stage is called " + quote_value(stage) + "; expected one of " + join_names(stages);
  if (!nearest.empty()) what += "; did you mean " + quote_value(prefix + std::string(nearest)) + "?";
  problems.add(override.origin, from_variable ? "" : override.path, what);
}

}  // namespace

void apply_overrides(YamlNode& root, StageInfos kinds, std::span<const Override> overrides,
                     PipelineProblems& problems) {
  for (const Override& override : overrides) {
    const bool from_variable = override.origin.kind == Origin::Kind::environment;
    // Made anew each time: an earlier override may have changed a stage's kind.
    const std::vector<std::string> paths = settable_paths(root, kinds);
    std::vector<std::string_view> matches;
    for (const std::string& path : paths) {
      if (from_variable ? variable_of(path) == variable_of(override.path) : path == override.path) {
        matches.push_back(path);
      }
    }
    if (matches.empty()) {
      report_unknown(override, from_variable, paths, problems);
      continue;
    }
    if (matches.size() > 1) {
      problems.add(override.origin, "",
                   "means any of " + join_names(matches) + "; expected --set with one of them");
      continue;
    }
    if (YamlNode* node = node_at_path(root, matches.front(), override.origin)) {
      *node = YamlNode{.kind = YamlNode::Kind::scalar, .text = override.value, .origin = override.origin};
    }
  }
}

std::vector<Override> overrides_from_environment(const char* const* environment) {
  std::vector<Override> overrides;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::size_t equals = entry.find('=');
    if (!entry.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    const std::string_view name = entry.substr(0, equals);
    if (is_other_variable(name)) continue;
    std::string path(name.substr(kPrefix.size()));
    std::transform(path.begin(), path.end(), path.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    // The section is the first word; only settings without a section have none.
    if (const std::size_t underscore = path.find('_'); underscore != std::string::npos)
      path[underscore] = '.';
    overrides.push_back({std::move(path), std::string(entry.substr(equals + 1)),
                         Origin{Origin::Kind::environment, std::string(name)}});
  }
  return overrides;
}

}  // namespace colibri
