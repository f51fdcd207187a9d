// config.json of a Hugging Face checkpoint, as a ModelSpec.
//
// Both styles are read: transformers 4 (rope_theta, rope_scaling, torch_dtype) and 5
// (rope_parameters, dtype). All problems of a file are reported in one sentence.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/family.hpp"
#include "io/container/model_spec.hpp"
#include "io/status.hpp"

namespace colibri {

struct ParsedConfig {
  // All but what the stored tensors decide: weight_dtype, embedding_dtype, weights_option,
  // expert_chunk_size, ignored_tensors. tied_head says what the config says.
  ModelSpec spec;
  const FamilyRow* family = nullptr;
  std::vector<std::string> notes;  // defaults that were taken, one line each
};

// `generation_config` may be empty. The sources name the texts in errors.
Result<ParsedConfig> parse_model_config(std::string_view config, const std::string& config_source,
                                        std::string_view generation_config,
                                        const std::string& generation_source);

}  // namespace colibri
