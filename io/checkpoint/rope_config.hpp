// From the rope keys of a config.json to rotation frequencies.
#pragma once

#include <cstdint>

#include "io/checkpoint/config_reader.hpp"
#include "io/container/model_spec.hpp"

namespace colibri {

// Reads rope_parameters (transformers 5) or rope_theta and rope_scaling (4). Problems go to `config`.
RopeSpec read_rope(ConfigReader& config, std::vector<std::string>& problems, std::uint32_t head_dim,
                   std::uint32_t max_position_embeddings);

}  // namespace colibri
