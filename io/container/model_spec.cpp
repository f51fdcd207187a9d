// Rules of a ModelSpec and the layout of an expert record.
#include "io/container/model_spec.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>

#include "kernels/packed_matrix.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kMatrixAlignment = 64;
constexpr std::uint32_t kRecordAlignment = 4096;
constexpr float kLargestScale = 1e6F;

// Collects the first broken rule; the sentence names the field, the value and what is allowed.
class RuleCheck {
 public:
  void range(std::string_view field, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
    if (value >= least && value <= most) return;
    fail(std::string(field) + " is " + std::to_string(value) + "; allowed is " + std::to_string(least) +
         " to " + std::to_string(most));
  }
  void require(bool holds, std::string sentence) {
    if (!holds) fail(std::move(sentence));
  }
  // Positive, finite and of a size that cannot overflow a product with an activation.
  void positive(std::string_view field, double value) {
    require(std::isfinite(value) && value > 0.0 && value <= kLargestScale,
            std::string(field) + " is " + std::to_string(value) + "; it must be positive and finite");
  }
  Status take() && { return std::move(status_); }
  bool failed() const noexcept { return !status_; }

 private:
  void fail(std::string sentence) {
    if (status_)
      status_ = Status(ErrorCode::invalid_input, "the model spec breaks a rule: " + std::move(sentence));
  }
  Status status_;
};

void check_attention(const ModelSpec& spec, RuleCheck& rules) {
  const AttentionSpec& attention = spec.attention;
  rules.range("attention.num_heads", attention.num_heads, 1, kMaxProjectionSize);
  rules.range("attention.num_kv_heads", attention.num_kv_heads, 1, kMaxProjectionSize);
  rules.range("attention.head_dim", attention.head_dim, 1, kMaxProjectionSize);
  if (rules.failed()) return;
  rules.range("attention.num_heads * head_dim", std::uint64_t{attention.num_heads} * attention.head_dim, 1,
              kMaxProjectionSize);
  rules.require(attention.num_heads % attention.num_kv_heads == 0,
                "attention.num_heads " + std::to_string(attention.num_heads) +
                    " is no multiple of num_kv_heads " + std::to_string(attention.num_kv_heads));
  rules.positive("attention.scale", attention.scale);
  rules.require(std::isfinite(attention.clip_qkv) && attention.clip_qkv >= 0.0F,
                "attention.clip_qkv must be finite and not negative");

  const RopeSpec& rope = spec.rope;
  rules.require(rope.rotary_dim % 2 == 0 && rope.rotary_dim <= attention.head_dim,
                "rope.rotary_dim " + std::to_string(rope.rotary_dim) + " must be even and at most head_dim " +
                    std::to_string(attention.head_dim));
  rules.require(rope.inverse_frequencies.size() == rope.rotary_dim / 2,
                "rope.inverse_frequencies has " + std::to_string(rope.inverse_frequencies.size()) +
                    " values; expected rotary_dim / 2 = " + std::to_string(rope.rotary_dim / 2));
  rules.positive("rope.attention_factor", rope.attention_factor);
  for (const double frequency : rope.inverse_frequencies) {
    rules.require(std::isfinite(frequency) && frequency >= 0.0 && frequency <= kLargestScale,
                  "rope.inverse_frequencies must be finite and not negative");
  }
}

void check_router(const ModelSpec& spec, RuleCheck& rules) {
  const kernels::RouterForm& router = spec.router;
  rules.range("num_experts", spec.num_experts, 1, kMaxExperts);
  rules.range("num_experts_per_token", spec.num_experts_per_token, 1, spec.num_experts);
  rules.require(
      router.num_experts == spec.num_experts && router.num_experts_per_token == spec.num_experts_per_token,
      "the router's counts of experts differ from the model's");
  rules.range("router.num_groups", router.num_groups, 1, spec.num_experts);
  if (rules.failed()) return;
  rules.require(spec.num_experts % router.num_groups == 0, "num_experts " + std::to_string(spec.num_experts) +
                                                               " is no multiple of router.num_groups " +
                                                               std::to_string(router.num_groups));
  rules.range("router.groups_per_token", router.groups_per_token, 1, router.num_groups);
  // The picks must fit into the groups that stay; summing the two best needs two per group.
  const std::uint64_t group_size = spec.num_experts / router.num_groups;
  rules.require(router.groups == kernels::RouterGroups::none ||
                    group_size * router.groups_per_token >= spec.num_experts_per_token,
                "router groups that stay hold fewer experts than num_experts_per_token");
  rules.require(router.groups != kernels::RouterGroups::sum_of_two_best || group_size >= 2,
                "router groups of one expert have no two best scores");
  rules.positive("router.scale", router.scale);
  rules.require(std::isfinite(router.epsilon) && router.epsilon >= 0.0F,
                "router.epsilon must be finite and not negative");
}

void check_layers(const ModelSpec& spec, RuleCheck& rules) {
  rules.range("number of layers", spec.layers.size(), 1, kMaxLayers);
  rules.require(spec.num_moe_layers() > 0, "no layer has experts");
  for (const LayerSpec& layer : spec.layers) {
    if (layer.moe) {
      rules.range("dense_intermediate_size of a layer with experts", layer.dense_intermediate_size, 0, 0);
    } else {
      rules.range("dense_intermediate_size of a dense layer", layer.dense_intermediate_size, 1,
                  kMaxIntermediateSize);
    }
    rules.range("sliding_window", layer.sliding_window, 0, kMaxSequenceLength);
  }
}

}  // namespace

std::uint32_t ModelSpec::num_moe_layers() const noexcept { return moe_ordinal(num_layers()); }

std::uint32_t ModelSpec::next_moe_layer(std::uint32_t layer) const noexcept {
  while (layer < num_layers() && !layers[layer].moe) ++layer;
  return std::min(layer, num_layers());
}

std::uint32_t ModelSpec::moe_ordinal(std::uint32_t layer) const noexcept {
  const auto end = layers.begin() + std::min(layer, num_layers());
  return static_cast<std::uint32_t>(
      std::count_if(layers.begin(), end, [](const LayerSpec& spec) { return spec.moe; }));
}

Status validate(const ModelSpec& spec) {
  RuleCheck rules;
  rules.range("hidden_size", spec.hidden_size, 1, kMaxHiddenSize);
  rules.range("intermediate_size", spec.intermediate_size, 1, kMaxIntermediateSize);
  rules.range("vocab_size", spec.vocab_size, 1, kMaxVocabSize);
  rules.range("max_seq_len", spec.max_seq_len, 1, kMaxSequenceLength);
  rules.require(std::isfinite(spec.rms_norm_eps) && spec.rms_norm_eps >= 0.0F && spec.rms_norm_eps < 1.0F,
                "rms_norm_eps is " + std::to_string(spec.rms_norm_eps) + "; allowed is 0 to 1");
  rules.range("expert_chunk_size", spec.expert_chunk_size, kRecordAlignment, kMaxChunkSize);
  rules.require(spec.expert_chunk_size % kRecordAlignment == 0,
                "expert_chunk_size " + std::to_string(spec.expert_chunk_size) + " is no multiple of 4096");
  rules.require(!kernels::has_integer_weights(spec.embedding_dtype), "embedding_dtype must be f32 or bf16");
  rules.range("shared_expert.intermediate_size", spec.shared_expert.intermediate_size, 0,
              kMaxIntermediateSize);
  check_layers(spec, rules);
  check_router(spec, rules);
  check_attention(spec, rules);
  for (const std::int32_t token : spec.stop_tokens) {
    rules.require(token >= 0 && static_cast<std::uint32_t>(token) < spec.vocab_size,
                  "stop token " + std::to_string(token) + " lies outside the vocabulary of " +
                      std::to_string(spec.vocab_size));
  }
  return std::move(rules).take();
}

Result<ExpertLayout> expert_layout(kernels::WeightFormat format, std::uint32_t hidden_size,
                                   std::uint32_t intermediate_size) {
  RuleCheck rules;
  rules.range("hidden_size", hidden_size, 1, kMaxHiddenSize);
  rules.range("intermediate_size", intermediate_size, 1, kMaxIntermediateSize);
  COLIBRI_RETURN_IF_ERROR(std::move(rules).take());
  // At most 3 * 2^17 * 2^20 * 4 bytes: no sum or product below can wrap.
  const std::uint64_t in_bytes = kernels::packed_shape(format, intermediate_size, hidden_size).bytes;
  const std::uint64_t out_bytes = kernels::packed_shape(format, hidden_size, intermediate_size).bytes;
  ExpertLayout layout;
  layout.format = format;
  layout.hidden_size = hidden_size;
  layout.intermediate_size = intermediate_size;
  layout.up_offset = *checked_round_up(in_bytes, kMatrixAlignment);
  layout.down_offset = *checked_round_up(layout.up_offset + in_bytes, kMatrixAlignment);
  layout.payload_bytes = layout.down_offset + out_bytes;
  layout.record_bytes = *checked_round_up(layout.payload_bytes, std::uint64_t{kRecordAlignment});
  return layout;
}

ExpertMatrices expert_matrices(const ExpertLayout& layout, const std::byte* record) noexcept {
  const std::uint32_t hidden = layout.hidden_size;
  const std::uint32_t width = layout.intermediate_size;
  return {{layout.format, width, hidden, record + layout.gate_offset},
          {layout.format, width, hidden, record + layout.up_offset},
          {layout.format, hidden, width, record + layout.down_offset}};
}

}  // namespace colibri
