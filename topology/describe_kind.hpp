// What stage kinds are, for people and for programs; all from their StageInfo.
//
// `colibri inspect`, its JSON, the reference in README.md, and the schema that editors check
// pipeline files with.
#pragma once

#include <string>

#include "topology/pipeline_spec.hpp"

namespace colibri {

// Several lines: help, ports, parameters with their range and default, metrics.
std::string describe_kind(const StageInfo& info);
// The same as one JSON object.
std::string describe_kind_json(const StageInfo& info);

// One line a kind.
std::string list_kinds(StageInfos kinds);
// {"kinds": [as describe_kind_json], "settings": [with a section each], "edge": [keys of an edge]}
std::string list_kinds_json(StageInfos kinds);
// Settings, edges and kinds as tables in Markdown, from headings of the third level on.
std::string reference_markdown(StageInfos kinds);

// A JSON Schema (draft 7, which editors' YAML servers read) of pipeline files that use these kinds.
std::string pipeline_json_schema(StageInfos kinds);

}  // namespace colibri
