// model_spec.json: a ModelSpec as JSON and back. configs/model_spec.schema.json describes the format.
//
// Names of enumerations are lower-case words. Reading is strict: every key must be there, have its
// type and be known, because a spec that is only partly understood would run a wrong model.
#include <charconv>
#include <type_traits>
#include <utility>

#include "io/container/model_spec.hpp"
#include "io/container/object_reader.hpp"
#include "io/json_tree.hpp"

namespace colibri {
namespace {

using nlohmann::json;

constexpr std::uint32_t kSpecVersion = 1;

constexpr Named<QkNorm> kQkNormNames[] = {
    {QkNorm::none, "none"}, {QkNorm::per_head, "per_head"}, {QkNorm::full_width, "full_width"}};
constexpr Named<kernels::RopePairing> kPairingNames[] = {{kernels::RopePairing::halves, "halves"},
                                                         {kernels::RopePairing::neighbours, "neighbours"}};
constexpr Named<kernels::RouterScore> kScoreNames[] = {
    {kernels::RouterScore::softmax_all, "softmax_all"},
    {kernels::RouterScore::softmax_chosen, "softmax_chosen"},
    {kernels::RouterScore::sigmoid, "sigmoid"},
    {kernels::RouterScore::sqrt_softplus, "sqrt_softplus"}};
constexpr Named<kernels::RouterGroups> kGroupNames[] = {
    {kernels::RouterGroups::none, "none"},
    {kernels::RouterGroups::max, "max"},
    {kernels::RouterGroups::sum_of_two_best, "sum_of_two_best"}};
constexpr Named<kernels::RouterRenormalise> kRenormaliseNames[] = {
    {kernels::RouterRenormalise::no, "no"},
    {kernels::RouterRenormalise::yes, "yes"},
    {kernels::RouterRenormalise::with_epsilon, "with_epsilon"}};
constexpr Named<kernels::WeightFormat> kFormatNames[] = {{kernels::WeightFormat::f32, "f32"},
                                                         {kernels::WeightFormat::bf16, "bf16"},
                                                         {kernels::WeightFormat::int8_g64, "int8_g64"},
                                                         {kernels::WeightFormat::int4_g32, "int4_g32"}};

template <class Enum>
std::string name_of(std::type_identity_t<Names<Enum>> names, Enum value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return std::string(name);
  }
  return {};
}

// The shortest decimal that reads back as the same float: 1e-06, not 9.999999974752427e-07.
double shortest(float value) {
  char text[64];
  const char* end = std::to_chars(text, text + sizeof(text), value).ptr;
  double wide = 0.0;
  std::from_chars(text, end, wide);  // unlike strtod, the same in every locale
  return wide;
}

void read_attention(ObjectReader reader, AttentionSpec& attention) {
  reader.read("num_heads", attention.num_heads);
  reader.read("num_kv_heads", attention.num_kv_heads);
  reader.read("head_dim", attention.head_dim);
  reader.read("qkv_bias", attention.qkv_bias);
  reader.read("output_bias", attention.output_bias);
  reader.read("qk_norm", kQkNormNames, attention.qk_norm);
  reader.read("clip_qkv", attention.clip_qkv);
  reader.read("scale", attention.scale);
  reader.refuse_unknown();
}

void read_rope(ObjectReader reader, RopeSpec& rope) {
  reader.read("rotary_dim", rope.rotary_dim);
  reader.read("pairing", kPairingNames, rope.pairing);
  reader.read("attention_factor", rope.attention_factor);
  reader.read_list("inverse_frequencies", kMaxProjectionSize, [&](const json& value, const std::string&) {
    if (!value.is_number()) return reader.fail("\"inverse_frequencies\" must be a list of numbers");
    rope.inverse_frequencies.push_back(value.get<double>());
  });
  reader.refuse_unknown();
}

void read_router(ObjectReader reader, const ModelSpec& spec, kernels::RouterForm& router) {
  router.num_experts = spec.num_experts;
  router.num_experts_per_token = spec.num_experts_per_token;
  reader.read("score", kScoreNames, router.score);
  reader.read("groups", kGroupNames, router.groups);
  reader.read("renormalise", kRenormaliseNames, router.renormalise);
  reader.read("epsilon", router.epsilon);
  reader.read("scale", router.scale);
  reader.read("num_groups", router.num_groups);
  reader.read("groups_per_token", router.groups_per_token);
  reader.refuse_unknown();
}

}  // namespace

std::string model_spec_to_json(const ModelSpec& spec) {
  json layers = json::array();
  for (const LayerSpec& layer : spec.layers) {
    layers.push_back({{"moe", layer.moe},
                      {"dense_intermediate_size", layer.dense_intermediate_size},
                      {"sliding_window", layer.sliding_window}});
  }
  const json document = {
      {"version", kSpecVersion},
      {"family", spec.family},
      {"hidden_size", spec.hidden_size},
      {"intermediate_size", spec.intermediate_size},
      {"vocab_size", spec.vocab_size},
      {"max_seq_len", spec.max_seq_len},
      {"num_experts", spec.num_experts},
      {"num_experts_per_token", spec.num_experts_per_token},
      {"rms_norm_eps", shortest(spec.rms_norm_eps)},
      {"weight_dtype", name_of(kFormatNames, spec.weight_dtype)},
      {"embedding_dtype", name_of(kFormatNames, spec.embedding_dtype)},
      {"weights_option", spec.weights_option},
      {"expert_chunk_size", spec.expert_chunk_size},
      {"tied_head", spec.tied_head},
      {"attention",
       {{"num_heads", spec.attention.num_heads},
        {"num_kv_heads", spec.attention.num_kv_heads},
        {"head_dim", spec.attention.head_dim},
        {"qkv_bias", spec.attention.qkv_bias},
        {"output_bias", spec.attention.output_bias},
        {"qk_norm", name_of(kQkNormNames, spec.attention.qk_norm)},
        {"clip_qkv", shortest(spec.attention.clip_qkv)},
        {"scale", shortest(spec.attention.scale)}}},
      {"rope",
       {{"rotary_dim", spec.rope.rotary_dim},
        {"pairing", name_of(kPairingNames, spec.rope.pairing)},
        {"attention_factor", spec.rope.attention_factor},
        {"inverse_frequencies", spec.rope.inverse_frequencies}}},
      {"router",
       {{"score", name_of(kScoreNames, spec.router.score)},
        {"groups", name_of(kGroupNames, spec.router.groups)},
        {"renormalise", name_of(kRenormaliseNames, spec.router.renormalise)},
        {"epsilon", shortest(spec.router.epsilon)},
        {"scale", shortest(spec.router.scale)},
        {"num_groups", spec.router.num_groups},
        {"groups_per_token", spec.router.groups_per_token}}},
      {"shared_expert",
       {{"intermediate_size", spec.shared_expert.intermediate_size},
        {"sigmoid_gate", spec.shared_expert.sigmoid_gate}}},
      {"layers", std::move(layers)},
      {"stop_tokens", spec.stop_tokens},
      {"ignored_tensors", spec.ignored_tensors},
  };
  return document.dump(2) + "\n";
}

Result<ModelSpec> model_spec_from_json(std::string_view text) {
  COLIBRI_ASSIGN_OR_RETURN(json document, parse_strict_json(text, "model spec"));
  const TakenApart at_the_end(document);
  ModelSpec spec;
  Status status;
  ObjectReader reader(&document, "$", status);
  std::uint32_t version = 0;
  reader.read("version", version);
  if (status && version != kSpecVersion) {
    return Status(ErrorCode::unsupported, "unknown version of the model spec, expected " +
                                              std::to_string(kSpecVersion) + ", found " +
                                              std::to_string(version) + "; convert the model again");
  }
  reader.read("family", spec.family);
  reader.read("hidden_size", spec.hidden_size);
  reader.read("intermediate_size", spec.intermediate_size);
  reader.read("vocab_size", spec.vocab_size);
  reader.read("max_seq_len", spec.max_seq_len);
  reader.read("num_experts", spec.num_experts);
  reader.read("num_experts_per_token", spec.num_experts_per_token);
  reader.read("rms_norm_eps", spec.rms_norm_eps);
  reader.read("weight_dtype", kFormatNames, spec.weight_dtype);
  reader.read("embedding_dtype", kFormatNames, spec.embedding_dtype);
  reader.read("weights_option", spec.weights_option);
  reader.read("expert_chunk_size", spec.expert_chunk_size);
  reader.read("tied_head", spec.tied_head);
  read_attention(reader.object("attention"), spec.attention);
  read_rope(reader.object("rope"), spec.rope);
  read_router(reader.object("router"), spec, spec.router);
  ObjectReader shared = reader.object("shared_expert");
  shared.read("intermediate_size", spec.shared_expert.intermediate_size);
  shared.read("sigmoid_gate", spec.shared_expert.sigmoid_gate);
  shared.refuse_unknown();
  reader.read_list("layers", kMaxLayers, [&](const json& value, const std::string& path) {
    ObjectReader layer_reader(&value, path, status);
    LayerSpec layer;
    layer_reader.read("moe", layer.moe);
    layer_reader.read("dense_intermediate_size", layer.dense_intermediate_size);
    layer_reader.read("sliding_window", layer.sliding_window);
    layer_reader.refuse_unknown();
    spec.layers.push_back(layer);
  });
  reader.read_list("stop_tokens", kMaxVocabSize, [&](const json& value, const std::string&) {
    const Result<std::uint64_t> token = json_unsigned(value);
    if (!token || *token >= kMaxVocabSize) return reader.fail("\"stop_tokens\" must be a list of token ids");
    spec.stop_tokens.push_back(static_cast<std::int32_t>(*token));
  });
  reader.read("ignored_tensors", spec.ignored_tensors);
  reader.refuse_unknown();
  COLIBRI_RETURN_IF_ERROR(std::move(status));
  COLIBRI_RETURN_IF_ERROR(validate(spec));
  return spec;
}

}  // namespace colibri
