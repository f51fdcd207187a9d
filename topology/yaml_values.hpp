// Nodes of a file as the values that tables ask for. Every refusal is reported with its place.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "topology/param_value.hpp"
#include "topology/pipeline_spec.hpp"
#include "topology/yaml_tree.hpp"

namespace colibri {

class YamlValues {
 public:
  // Problems go to `problems`, which outlives this.
  explicit YamlValues(PipelineProblems& problems) : problems_(problems) {}

  // "found a list; expected ...". An empty node has no place of its own: its key's is given. Refused nodes
  // were reported when the file was parsed, and are passed over.
  void wrong_type(const YamlNode& node, const Origin& key, const std::string& path,
                  std::string_view expected);
  void unknown_key(const YamlEntry& entry, const std::string& path, std::span<const std::string_view> names);

  // False, and reported, when the node is no map.
  bool is_map(const YamlNode& node, const Origin& key, const std::string& path, std::string_view expected);
  // False, and reported, when the entry holds no text, or text in quotes where YAML would mean a number or a
  // truth value without them.
  bool is_value(const YamlEntry& entry, const ParamInfo& info, const std::string& path,
                const std::string& expected);
  // The value; nullopt, and reported, when it is none of this parameter.
  std::optional<ParamValue> read_value(const YamlEntry& entry, const ParamInfo& info,
                                       const std::string& path);

 private:
  PipelineProblems& problems_;
};

}  // namespace colibri
