// A YAML document as a plain tree that knows where each key and value stands.
//
// Built from the parser's events rather than from its node type, because that merges
// duplicate keys and follows aliases silently; here both are problems with a position.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/pipeline_spec.hpp"

namespace colibri {

struct YamlEntry;

struct YamlNode {
  enum class Kind : std::uint8_t { empty, scalar, sequence, map, refused };
  Kind kind = Kind::empty;
  std::string text;     // scalar
  bool quoted = false;  // scalar in quotes or as a block
  Origin origin;
  std::vector<YamlNode> items;     // sequence
  std::vector<YamlEntry> entries;  // map: in file order, no key twice

  YamlEntry* find(std::string_view key) noexcept;
  const YamlEntry* find(std::string_view key) const noexcept;
};

struct YamlEntry {
  std::string key;
  Origin key_origin;
  YamlNode value;
};

inline constexpr std::size_t kMaximumYamlDepth = 16;
// Keys of one map, items of one list: keeps the search for duplicates cheap on a hostile file.
inline constexpr std::size_t kMaximumYamlEntries = 4096;

// Parses one document. Problems: syntax, size, control characters, bytes that are not UTF-8, nesting,
// anchors, aliases, merge keys, tags, duplicate keys, more than one document. What a problem touches becomes
// a `refused` node, about which nobody needs to complain again. False when nothing useful could be read.
bool parse_yaml_tree(std::string_view yaml, std::string_view file_name, YamlNode& root,
                     PipelineProblems& problems);

}  // namespace colibri
