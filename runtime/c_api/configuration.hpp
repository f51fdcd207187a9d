// colibri_config to what the engine is opened with: a pipeline, its settings, hooks of the host.
#pragma once

#include <colibri/engine.hpp>
#include <string>

#include "runtime/c_api/boundary.hpp"

namespace colibri::c_api {

struct Configuration {
  std::int32_t purpose = COLIBRI_PURPOSE_TEXT;
  PipelineSpec pipeline;
  EngineOptions options;
};

// `config` null: the defaults. `record_bytes`: of one expert of the model, in which config->expert_slots
// count. Errors: invalid_input, unsupported, with every problem of the pipeline.
Result<Configuration> read_configuration(const colibri_config* config, std::uint64_t record_bytes);

// A path that is not empty.
Result<std::string> read_path(const char* path, std::string_view name);

}  // namespace colibri::c_api
