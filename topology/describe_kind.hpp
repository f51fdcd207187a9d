// What a stage kind is, for people and for programs; all from its StageInfo.
//
// `colibri inspect KIND`, its JSON, and the schema that editors check pipeline files with.
#pragma once

#include <string>

#include "topology/pipeline_spec.hpp"

namespace colibri {

// Several lines: help, ports, parameters with their range and default, metrics.
std::string describe_kind(const StageInfo& info);
// The same as one JSON object.
std::string describe_kind_json(const StageInfo& info);

// A JSON Schema (draft 7, which editors' YAML servers read) of pipeline files that use these kinds.
std::string pipeline_json_schema(StageInfos kinds);

}  // namespace colibri
