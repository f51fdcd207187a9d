// Types of nodes against what a table expects, and the sentences when they differ.
#include "topology/yaml_values.hpp"

#include "topology/problem_text.hpp"

namespace colibri {
namespace {

std::string_view kind_text(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::empty: return "no value";
    case YamlNode::Kind::scalar: return "a single value";
    case YamlNode::Kind::sequence: return "a list";
    case YamlNode::Kind::map: return "a map";
    case YamlNode::Kind::refused: return "a value that was refused";
  }
  return "something else";
}

}  // namespace

void YamlValues::wrong_type(const YamlNode& node, const Origin& key, const std::string& path,
                            std::string_view expected) {
  if (node.kind == YamlNode::Kind::refused) return;
  const Origin& origin = node.kind == YamlNode::Kind::empty ? key : node.origin;
  problems_.add(origin, path,
                "found " + std::string(kind_text(node.kind)) + "; expected " + std::string(expected));
}

void YamlValues::unknown_key(const YamlEntry& entry, const std::string& path,
                             std::span<const std::string_view> names) {
  problems_.add(entry.key_origin, path,
                "unknown key; expected one of " + join_names(names) + suggest_name(entry.key, names));
}

bool YamlValues::is_map(const YamlNode& node, const Origin& key, const std::string& path,
                        std::string_view expected) {
  if (node.kind == YamlNode::Kind::map) return true;
  wrong_type(node, key, path, expected);
  return false;
}

bool YamlValues::is_value(const YamlEntry& entry, const ParamInfo& info, const std::string& path,
                          const std::string& expected) {
  const YamlNode& node = entry.value;
  if (node.kind != YamlNode::Kind::scalar) {
    wrong_type(node, entry.key_origin, path, expected);
    return false;
  }
  // Sizes and choices are text to YAML anyway, with or without quotes.
  const bool plain_only =
      info.type == ParamType::boolean || info.type == ParamType::integer || info.type == ParamType::number;
  if (node.quoted && plain_only && node.text != "auto") {
    problems_.add(node.origin, path, quote_value(node.text) + " is text in quotes; expected " + expected);
    return false;
  }
  return true;
}

std::optional<ParamValue> YamlValues::read_value(const YamlEntry& entry, const ParamInfo& info,
                                                 const std::string& path) {
  if (!is_value(entry, info, path, expected_text(info))) return std::nullopt;
  const Result<ParamValue> value = read_param(info, entry.value.text);
  if (!value) {
    problems_.add(entry.value.origin, path, value.status().message());
    return std::nullopt;
  }
  return *value;
}

}  // namespace colibri
