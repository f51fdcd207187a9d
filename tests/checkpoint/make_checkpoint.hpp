// Synthetic Hugging Face checkpoints of any size: qwen3_moe, BF16, seeded values, written as a
// stream, so that a test can make one that is larger than memory.
#pragma once

#include <cstdint>
#include <filesystem>

#include "io/status.hpp"

namespace colibri::test {

struct SyntheticCheckpoint {
  std::uint32_t hidden_size = 64;
  std::uint32_t intermediate_size = 32;  // of an expert
  std::uint32_t num_layers = 2;
  std::uint32_t num_experts = 4;
  std::uint32_t num_experts_per_token = 2;
  std::uint32_t num_heads = 4;
  std::uint32_t num_kv_heads = 2;
  std::uint32_t head_dim = 16;
  std::uint32_t vocab_size = 128;
  std::uint32_t num_shards = 1;  // above 1: shards with an index
  std::uint64_t seed = 1;
};

// Values are uniform in +-sqrt(3 / columns) (norms: 1), so that activations stay near 1.
Status write_synthetic_checkpoint(const std::filesystem::path& folder, const SyntheticCheckpoint& shape);

}  // namespace colibri::test
