// MoE layers of a model as a parameter names them: "all", or a list such as "0-3,8".
#pragma once

#include <string_view>
#include <vector>

#include "io/container/model_spec.hpp"
#include "io/status.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {

// [num_layers] whether the layer is one of them. Each item of the list must hold a layer with experts; others
// inside a range are passed over. The error names the layers that there are.
Result<std::vector<bool>> parse_layer_list(std::string_view text, const ModelSpec& spec);

// Adds a problem for each list of layers in the pipeline that names others than the model has.
void check_layer_lists(const PipelineSpec& pipeline, StageInfos kinds, const ModelSpec& spec,
                       PipelineProblems& problems);

}  // namespace colibri
