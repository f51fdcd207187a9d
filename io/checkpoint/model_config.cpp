// Reading config.json by the family table.
#include "io/checkpoint/model_config.hpp"

#include <algorithm>
#include <cmath>

#include "io/checkpoint/config_reader.hpp"
#include "io/checkpoint/problem_list.hpp"
#include "io/checkpoint/rope_config.hpp"
#include "io/container/strict_json.hpp"

namespace colibri {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxStopTokens = 64;

// Keys of any config.json that do not change what a causal model computes at inference: bookkeeping,
// training, generation defaults, and base-class attributes of transformers.
// clang-format off
constexpr std::string_view kIgnoredKeys[] = {
    "_attn_implementation", "_attn_implementation_autoset", "_experts_implementation", "_from_model_config",
    "_name_or_path", "add_cross_attention", "architectures", "attention_dropout", "attn_implementation",
    "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "chunk_size_feed_forward",
    "cross_attention_hidden_size", "decoder_start_token_id", "diversity_penalty", "do_sample", "dtype",
    "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task",
    "forced_bos_token_id", "forced_eos_token_id", "id2label", "initializer_range", "is_decoder",
    "is_encoder_decoder", "keys_to_ignore_at_inference", "label2id", "length_penalty", "max_length",
    "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_nextn_predict_layers",
    "num_return_sequences", "output_attentions", "output_hidden_states", "output_router_logits",
    "output_scores", "pad_token_id", "prefix", "problem_type", "remove_invalid_values",
    "repetition_penalty", "return_dict", "return_dict_in_generate", "router_aux_loss_coef", "sep_token_id",
    "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder",
    "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version", "typical_p",
    "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache"};
// clang-format on

// One config while it is read.
struct Parse {
  ConfigReader config;
  const FamilyRow& family;
  std::vector<std::string>& problems;
  ModelSpec spec;
  std::vector<std::string> notes;
};

bool flag(Parse& parse, std::string_view key, bool absent) {
  if (key.empty()) return absent;
  const bool found = parse.config.find(key) != nullptr;
  if (!found)
    parse.notes.push_back("config.json has no " + std::string(key) + "; taken as " +
                          (absent ? "true" : "false"));
  return parse.config.boolean(key).value_or(absent);
}

void read_attention(Parse& parse) {
  ModelSpec& spec = parse.spec;
  AttentionSpec& attention = spec.attention;
  attention.num_heads = parse.config.required_unsigned("num_attention_heads", 1, kMaxProjectionSize);
  attention.num_kv_heads = parse.config.unsigned_number("num_key_value_heads", 1, kMaxProjectionSize)
                               .value_or(attention.num_heads);
  attention.head_dim = parse.config.unsigned_number("head_dim", 1, kMaxProjectionSize)
                           .value_or(std::max(1U, spec.hidden_size / attention.num_heads));
  const FamilyRow& family = parse.family;
  attention.qkv_bias =
      !family.qkv_bias_key.empty() && flag(parse, family.qkv_bias_key, family.qkv_bias_default);
  attention.output_bias = attention.qkv_bias && family.qkv_bias_covers_output;
  attention.qk_norm = family.qk_norm;
  if (!family.qk_norm_key.empty() && !parse.config.boolean(family.qk_norm_key).value_or(true)) {
    parse.config.wrong(family.qk_norm_key, "must be true in this family, found false");
  }
  attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.head_dim)));
  if (!family.clip_key.empty()) {
    const double clip = parse.config.number(family.clip_key).value_or(0.0);
    if (clip < 0.0)
      parse.config.wrong(family.clip_key, "must not be negative, found " + std::to_string(clip));
    attention.clip_qkv = static_cast<float>(std::max(0.0, clip));
  }
  spec.rope = read_rope(parse.config, parse.problems, attention.head_dim, spec.max_seq_len);
}

void read_router(Parse& parse) {
  ModelSpec& spec = parse.spec;
  const bool local = parse.config.find("num_local_experts") != nullptr;
  const bool plain = parse.config.find("num_experts") != nullptr;
  const std::string_view key = local ? "num_local_experts" : "num_experts";
  spec.num_experts = parse.config.required_unsigned(key, 1, kMaxExperts);
  if (local && plain && parse.config.unsigned_number("num_experts", 1, kMaxExperts) != spec.num_experts) {
    parse.config.problem("num_experts and num_local_experts differ");
  }
  spec.num_experts_per_token = parse.config.required_unsigned("num_experts_per_tok", 1, spec.num_experts);
  spec.router.num_experts = spec.num_experts;
  spec.router.num_experts_per_token = spec.num_experts_per_token;
  const bool renormalise = parse.family.renormalise_key.empty() ||
                           flag(parse, parse.family.renormalise_key, parse.family.renormalise_default);
  spec.router.renormalise = renormalise ? kernels::RouterRenormalise::yes : kernels::RouterRenormalise::no;
}

// Which layers have experts, and how wide the others are.
void read_layers(Parse& parse) {
  ModelSpec& spec = parse.spec;
  spec.layers.resize(parse.config.required_unsigned("num_hidden_layers", 1, kMaxLayers));
  for (LayerSpec& layer : spec.layers) layer.moe = true;
  spec.intermediate_size =
      parse.config.required_unsigned(parse.family.expert_width_key, 1, kMaxIntermediateSize);
  if (!parse.family.shared_width_key.empty()) {
    spec.shared_expert.intermediate_size =
        parse.config.required_unsigned(parse.family.shared_width_key, 1, kMaxIntermediateSize);
    spec.shared_expert.sigmoid_gate = true;
  }
  if (parse.family.dense_width_key.empty()) return;
  const std::uint32_t step = parse.config.unsigned_number("decoder_sparse_step", 1, kMaxLayers).value_or(1);
  for (std::uint32_t i = 0; i < spec.num_layers(); ++i) spec.layers[i].moe = (i + 1) % step == 0;
  if (const json* list = parse.config.find("mlp_only_layers"); list != nullptr) {
    for (const json& value : *list) {
      if (!list->is_array() || !value.is_number_unsigned()) {
        parse.config.wrong("mlp_only_layers", "must be a list of layer numbers");
        break;
      }
      if (value.get<std::uint64_t>() < spec.num_layers()) spec.layers[value.get<std::size_t>()].moe = false;
    }
  }
  const bool any_dense = spec.num_moe_layers() < spec.num_layers();
  const std::optional<std::uint32_t> width =
      any_dense ? parse.config.required_unsigned(parse.family.dense_width_key, 1, kMaxIntermediateSize)
                : parse.config.unsigned_number(parse.family.dense_width_key, 0, kMaxIntermediateSize);
  for (LayerSpec& layer : spec.layers) {
    if (!layer.moe) layer.dense_intermediate_size = width.value_or(0);
  }
}

// The window of each layer from `layer_types`.
void read_layer_types(Parse& parse, const json& types, std::uint32_t window) {
  if (!types.is_array() || types.size() != parse.spec.layers.size()) {
    return parse.config.wrong("layer_types", "must be a list with one entry per layer");
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "full_attention") continue;
    if (types[i] != "sliding_attention") {
      return parse.config.wrong("layer_types",
                                "must hold full_attention or sliding_attention, found " +
                                    types[i].dump(-1, ' ', true, json::error_handler_t::replace));
    }
    if (window == 0)
      return parse.config.wrong("layer_types", "has sliding layers, but no sliding window is in use");
    parse.spec.layers[i].sliding_window = window;
  }
}

// 0 means no window, like null. The Qwen classes of transformers 4 put the window into layers from
// max_window_layers on; those of 5 put it into all layers (qwen3_moe) or into every other layer below
// max_window_layers (qwen2_moe). Where layer_types does not settle it, the file is refused.
void read_windows(Parse& parse) {
  if (parse.family.window == WindowRule::none) return;
  const std::uint32_t window =
      parse.config.unsigned_number("sliding_window", 0, kMaxSequenceLength).value_or(0);
  if (parse.family.window == WindowRule::every_layer) {
    for (LayerSpec& layer : parse.spec.layers) layer.sliding_window = window;
    return;
  }
  const bool in_use = parse.config.boolean("use_sliding_window").value_or(false) && window > 0;
  const json* types = parse.config.find("layer_types");
  parse.config.find("max_window_layers");
  if (types != nullptr) return read_layer_types(parse, *types, in_use ? window : 0);
  if (in_use) {
    parse.config.wrong("use_sliding_window",
                       "is true, which versions of transformers read differently; add layer_types with "
                       "full_attention or sliding_attention for each layer");
  }
}

void read_stop_tokens(ConfigReader& reader, ModelSpec& spec) {
  const json* value = reader.find("eos_token_id");
  if (value == nullptr) return;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& token : list) {
    if (!token.is_number_unsigned() || token.get<std::uint64_t>() >= spec.vocab_size ||
        list.size() > kMaxStopTokens) {
      return reader.wrong("eos_token_id", "must be token ids below " + std::to_string(spec.vocab_size) +
                                              ", found " + value->dump());
    }
    const auto id = token.get<std::int32_t>();
    if (std::find(spec.stop_tokens.begin(), spec.stop_tokens.end(), id) == spec.stop_tokens.end()) {
      spec.stop_tokens.push_back(id);
    }
  }
}

void read_all(Parse& parse) {
  ConfigReader& config = parse.config;
  ModelSpec& spec = parse.spec;
  spec.family = parse.family.model_type;
  spec.hidden_size = config.required_unsigned("hidden_size", 1, kMaxHiddenSize);
  spec.vocab_size = config.required_unsigned("vocab_size", 1, kMaxVocabSize);
  spec.max_seq_len = config.required_unsigned("max_position_embeddings", 1, kMaxSequenceLength);
  spec.rms_norm_eps = static_cast<float>(config.required_number("rms_norm_eps"));
  spec.tied_head = config.boolean("tie_word_embeddings").value_or(false);
  // Absent is silu in every row's class.
  if (const std::string act = config.string("hidden_act").value_or("silu"); act != "silu") {
    config.wrong("hidden_act", "\"" + act + "\" is not supported; supported is silu");
  }
  read_layers(parse);
  read_router(parse);
  read_attention(parse);
  read_windows(parse);
  read_stop_tokens(config, spec);
  config.find("model_type");
  config.ignore(kIgnoredKeys);
  config.ignore(parse.family.ignored_keys);
  config.refuse_unread();
}

// What must be refused before the family is even looked at.
Result<const FamilyRow*> row_of(const json& document, const std::string& source) {
  if (!document.is_object()) {
    return Status(ErrorCode::invalid_input, "not a model config: " + source + ", expected an object, found " +
                                                std::string(json_kind(document)));
  }
  const auto type = document.find("model_type");
  const std::string name = type != document.end() && type->is_string() ? type->get<std::string>() : "";
  const FamilyRow* family = find_family(name);
  if (family == nullptr) {
    return Status(ErrorCode::unsupported, "unsupported model family: " + source + ": model_type is \"" +
                                              name + "\"; supported are " + supported_families());
  }
  const auto quantization = document.find("quantization_config");
  if (quantization != document.end() && !quantization->is_null()) {
    std::string method = "without a quant_method";
    if (quantization->is_object() && quantization->contains("quant_method")) {
      method = (*quantization)["quant_method"].dump(-1, ' ', true, json::error_handler_t::replace);
    }
    return Status(ErrorCode::unsupported, "unsupported quantization_config: " + source + ": quant_method " +
                                              method + "; convert a checkpoint stored in F32, F16 or BF16");
  }
  return family;
}

}  // namespace

Result<ParsedConfig> parse_model_config(std::string_view config, const std::string& config_source,
                                        std::string_view generation_config,
                                        const std::string& generation_source) {
  COLIBRI_ASSIGN_OR_RETURN(const json document, parse_strict_json(config, config_source));
  COLIBRI_ASSIGN_OR_RETURN(const FamilyRow* const family, row_of(document, config_source));
  std::vector<std::string> problems;
  Parse parse{ConfigReader(document, "", problems), *family, problems, {}, {}};
  read_all(parse);
  if (!generation_config.empty()) {
    COLIBRI_ASSIGN_OR_RETURN(const json generation, parse_strict_json(generation_config, generation_source));
    ConfigReader reader(generation, "generation_config.json: ", problems);
    if (generation.is_object()) read_stop_tokens(reader, parse.spec);
  }
  if (!problems.empty()) {
    return Status(ErrorCode::unsupported,
                  "this model cannot be converted: " + config_source + ": " + list_problems(problems));
  }
  if (Status valid = validate(parse.spec); !valid) return std::move(valid).at("file " + config_source);
  return ParsedConfig{std::move(parse.spec), family, std::move(parse.notes)};
}

}  // namespace colibri
