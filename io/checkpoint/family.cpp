// Rows of the family table. Sources: the configuration and modeling files of transformers.
#include "io/checkpoint/family.hpp"

#include <algorithm>
#include <charconv>

namespace colibri {
namespace {

// Names that all present families share.
constexpr TensorNames kLlamaTensors[] = {
    {"embedding.weight", {"model.embed_tokens.weight"}},
    {"final_norm.weight", {"model.norm.weight"}},
    {"head.weight", {"lm_head.weight"}},
    {"attention_norm.weight", {"input_layernorm.weight"}},
    {"ffn_norm.weight", {"post_attention_layernorm.weight"}},
    {"qkv.weight", {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
    {"qkv.bias", {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}},
    {"q_norm.weight", {"self_attn.q_norm.weight"}},
    {"k_norm.weight", {"self_attn.k_norm.weight"}},
    {"attention_output.weight", {"self_attn.o_proj.weight"}},
    {"attention_output.bias", {"self_attn.o_proj.bias"}},
    {"ffn.gate.weight", {"mlp.gate_proj.weight"}},
    {"ffn.up.weight", {"mlp.up_proj.weight"}},
    {"ffn.down.weight", {"mlp.down_proj.weight"}},
    {"shared.gate.weight", {"mlp.shared_expert.gate_proj.weight"}},
    {"shared.up.weight", {"mlp.shared_expert.up_proj.weight"}},
    {"shared.down.weight", {"mlp.shared_expert.down_proj.weight"}},
    {"shared_gate.weight", {"mlp.shared_expert_gate.weight"}},
};

constexpr ExpertNames kMlpFused = {"mlp.gate.weight", "mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj",
                                   "mlp.experts.down_proj", true};
constexpr ExpertNames kQwenExperts[] = {
    {"mlp.gate.weight", "mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight",
     "mlp.experts.{e}.down_proj.weight"},
    kMlpFused,
};
constexpr ExpertNames kMixtralExperts[] = {
    {"block_sparse_moe.gate.weight", "block_sparse_moe.experts.{e}.w1.weight",
     "block_sparse_moe.experts.{e}.w3.weight", "block_sparse_moe.experts.{e}.w2.weight"},
    kMlpFused,
    {"block_sparse_moe.gate.weight", "block_sparse_moe.experts.gate_up_proj",
     "block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.down_proj", true},
};

// router_jitter_noise: transformers adds it in training only.
constexpr std::string_view kMixtralIgnored[] = {"router_jitter_noise"};

constexpr FamilyRow kFamilies[] = {
    {
        .model_type = "mixtral",
        .expert_width_key = "intermediate_size",
        .window = WindowRule::every_layer,
        .ignored_keys = kMixtralIgnored,
        .tensors = kLlamaTensors,
        .expert_names = kMixtralExperts,
    },
    {
        .model_type = "olmoe",
        .expert_width_key = "intermediate_size",
        .qkv_bias_key = "attention_bias",
        .qkv_bias_covers_output = true,
        .renormalise_key = "norm_topk_prob",
        .clip_key = "clip_qkv",
        .qk_norm = QkNorm::full_width,
        .tensors = kLlamaTensors,
        .expert_names = kQwenExperts,
    },
    {
        .model_type = "qwen2_moe",
        .expert_width_key = "moe_intermediate_size",
        .dense_width_key = "intermediate_size",
        .shared_width_key = "shared_expert_intermediate_size",
        .qkv_bias_key = "qkv_bias",
        .qkv_bias_default = true,  // files older than the key have the biases
        .renormalise_key = "norm_topk_prob",
        .window = WindowRule::qwen_switch,
        .tensors = kLlamaTensors,
        .expert_names = kQwenExperts,
    },
    {
        .model_type = "qwen3_moe",
        .expert_width_key = "moe_intermediate_size",
        .dense_width_key = "intermediate_size",
        .qkv_bias_key = "attention_bias",
        .qkv_bias_covers_output = true,
        .renormalise_key = "norm_topk_prob",
        .qk_norm = QkNorm::per_head,
        .qk_norm_key = "use_qk_norm",
        .window = WindowRule::qwen_switch,
        .tensors = kLlamaTensors,
        .expert_names = kQwenExperts,
    },
};

}  // namespace

std::span<const FamilyRow> families() noexcept { return kFamilies; }

const FamilyRow* find_family(std::string_view model_type) noexcept {
  const auto found =
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [model_type](const FamilyRow& row) { return row.model_type == model_type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

std::string supported_families() {
  std::string list;
  for (const FamilyRow& row : kFamilies) {
    if (!list.empty()) list += ", ";
    list += row.model_type;
  }
  return list;
}

bool is_ignorable_tensor(std::string_view name, std::uint32_t num_layers) noexcept {
  if (name.starts_with("mtp.") || name.starts_with("model.mtp.")) return true;
  if (!name.starts_with(kLayerPrefix)) return false;
  std::uint32_t layer = 0;
  const char* begin = name.data() + kLayerPrefix.size();
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, layer);
  if (error != std::errc() || rest == end || *rest != '.') return false;
  return layer >= num_layers || name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace colibri
