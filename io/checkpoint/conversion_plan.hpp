// ConversionPlan: where every tensor of a container comes from, decided before anything is written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_folder.hpp"
#include "io/checkpoint/matrix_source.hpp"
#include "io/checkpoint/model_config.hpp"
#include "io/container/container.hpp"
#include "io/status.hpp"

namespace colibri {

struct ExpertSource {
  MatrixSource gate, up, down;
};

struct ConversionPlan {
  ModelSpec spec;                     // complete
  std::vector<DenseTensor> tensors;   // as dense_slots(spec); offsets are not set
  std::vector<MatrixSource> sources;  // one per tensor
  std::vector<ExpertSource> experts;  // in (layer, expert) order
};

// `weights` is auto, f32, bf16, int8 or int4. Names every missing, extra or misshapen tensor in one sentence.
Result<ConversionPlan> plan_conversion(const ParsedConfig& config, const CheckpointFolder& checkpoint,
                                       const std::string& weights, std::uint32_t chunk_bytes);

}  // namespace colibri
