// ModelSpec: what a model is, as plain data.
//
// Written by the converter as model_spec.json and read at open. One description of
// attention, router and FFN covers all families; no code elsewhere asks for a family name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"
#include "kernels/export.hpp"
#include "kernels/kernel_table.hpp"
#include "kernels/router.hpp"

namespace colibri {

// Limits on what a spec may say; anything above is refused as corrupt or unsupported.
inline constexpr std::uint32_t kMaxLayers = 1024;
inline constexpr std::uint32_t kMaxExperts = 4096;
inline constexpr std::uint32_t kMaxHiddenSize = 1U << 17;
inline constexpr std::uint32_t kMaxVocabSize = 1U << 22;
inline constexpr std::uint32_t kMaxSequenceLength = 1U << 24;
inline constexpr std::uint32_t kMaxIntermediateSize = 1U << 20;
inline constexpr std::uint32_t kMaxProjectionSize = 1U << 20;  // heads * head_dim
inline constexpr std::uint32_t kMaxChunkSize = 1U << 26;

enum class QkNorm : std::uint8_t { none, per_head, full_width };

struct AttentionSpec {
  std::uint32_t num_heads = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  bool qkv_bias = false;
  bool output_bias = false;
  QkNorm qk_norm = QkNorm::none;  // before rope
  float clip_qkv = 0.0F;          // q, k, v clamped to +-clip after the norm; 0: no clamp
  float scale = 0.0F;             // of the scores, usually head_dim^-0.5

  std::uint32_t query_size() const noexcept { return num_heads * head_dim; }
  std::uint32_t kv_size() const noexcept { return num_kv_heads * head_dim; }
};

struct RopeSpec {
  std::uint32_t rotary_dim = 0;  // leading entries of each head that rotate
  kernels::RopePairing pairing = kernels::RopePairing::halves;
  double attention_factor = 1.0;            // multiplies cos and sin (yarn)
  std::vector<double> inverse_frequencies;  // [rotary_dim / 2], scaling already applied by convert
};

struct LayerSpec {
  bool moe = false;
  std::uint32_t dense_intermediate_size = 0;  // dense FFN layers only
  std::uint32_t sliding_window = 0;           // 0: full attention; counts the token itself
};

struct SharedExpertSpec {
  std::uint32_t intermediate_size = 0;  // 0: no shared expert
  bool sigmoid_gate = false;            // output times sigmoid(w . x)
};

struct COLIBRI_API ModelSpec {
  std::string family;  // informational: "qwen3_moe"
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;  // of a routed expert
  std::uint32_t vocab_size = 0;
  std::uint32_t max_seq_len = 0;
  std::uint32_t num_experts = 0;
  std::uint32_t num_experts_per_token = 0;
  float rms_norm_eps = 1e-6F;
  kernels::WeightFormat weight_dtype = kernels::WeightFormat::bf16;     // experts and dense matrices
  kernels::WeightFormat embedding_dtype = kernels::WeightFormat::bf16;  // stored precision
  std::string weights_option;  // what convert was asked for: auto, f32, bf16, int8, int4
  std::uint32_t expert_chunk_size = 128 * 1024;
  bool tied_head = false;  // no head.weight tensor: the embedding is the head
  AttentionSpec attention;
  RopeSpec rope;
  kernels::RouterForm router;
  SharedExpertSpec shared_expert;
  std::vector<LayerSpec> layers;
  std::vector<std::int32_t> stop_tokens;  // eos ids of config.json and generation_config.json
  std::uint64_t ignored_tensors = 0;      // multi-token-prediction tensors left out by convert

  std::uint32_t num_layers() const noexcept { return static_cast<std::uint32_t>(layers.size()); }
  std::uint32_t num_moe_layers() const noexcept;
  // The first MoE layer >= `layer`, or num_layers() when there is none.
  std::uint32_t next_moe_layer(std::uint32_t layer) const noexcept;
  // Position of a MoE layer among the MoE layers (0-based).
  std::uint32_t moe_ordinal(std::uint32_t layer) const noexcept;
};

// Where the three matrices of an expert lie in its record (all offsets 64-byte aligned).
struct ExpertLayout {
  kernels::WeightFormat format = kernels::WeightFormat::bf16;
  std::uint32_t hidden_size = 0;
  std::uint32_t intermediate_size = 0;
  std::uint64_t gate_offset = 0;  // [intermediate, hidden]
  std::uint64_t up_offset = 0;    // [intermediate, hidden]
  std::uint64_t down_offset = 0;  // [hidden, intermediate]
  std::uint64_t payload_bytes = 0;
  std::uint64_t record_bytes = 0;  // payload rounded up to 4096
};
COLIBRI_API Result<ExpertLayout> expert_layout(kernels::WeightFormat format, std::uint32_t hidden_size,
                                               std::uint32_t intermediate_size);
// Views of the matrices of a record that lies at `record`.
struct ExpertMatrices {
  kernels::PackedMatrix gate, up, down;
};
COLIBRI_API ExpertMatrices expert_matrices(const ExpertLayout& layout, const std::byte* record) noexcept;

// Checks every rule that later stages rely on (ranges, divisibility, sizes that multiply without overflow).
COLIBRI_API Status validate(const ModelSpec& spec);

COLIBRI_API std::string model_spec_to_json(const ModelSpec& spec);
COLIBRI_API Result<ModelSpec> model_spec_from_json(std::string_view json);

}  // namespace colibri
