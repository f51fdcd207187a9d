// Values set from outside the file, put into its tree before that is read: whatever is
// checked for a value in the file is then checked for these too.
#pragma once

#include <span>

#include "topology/pipeline_spec.hpp"
#include "topology/yaml_tree.hpp"

namespace colibri {

// Overrides that name nothing become problems, with the nearest path or variable.
void apply_overrides(YamlNode& root, StageInfos kinds, std::span<const Override> overrides,
                     PipelineProblems& problems);

}  // namespace colibri
