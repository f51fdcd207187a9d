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

// `config` null: the defaults. The model is looked at when config->expert_slots count its records. Errors:
// invalid_input, unsupported, with every problem of the pipeline; those of Container::open.
Result<Configuration> read_configuration(const colibri_config* config, const std::string& model);

// A path that is not empty.
Result<std::string> read_path(const char* path, std::string_view name);

}  // namespace colibri::c_api
