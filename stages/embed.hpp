// embed: the first residual rows of a wave, gathered from the embedding matrix.
#pragma once

#include <colibri/registry.hpp>
#include <cstdint>
#include <memory>

namespace colibri {

extern const StageInfo kEmbedInfo;
std::unique_ptr<Stage> create_embed();
std::uint64_t embed_memory_bytes(const PlanInputs& inputs);

}  // namespace colibri
