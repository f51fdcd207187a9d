// model_spec.json: a ModelSpec as JSON and back. configs/model_spec.schema.json describes the format.
//
// Names of enumerations are lower-case words. Reading is strict: every key must be there, have its
// type and be known, because a spec that is only partly understood would run a wrong model.
#include <charconv>
#include <concepts>
#include <cstdlib>
#include <limits>
#include <set>
#include <span>
#include <type_traits>
#include <utility>

#include "io/container/model_spec.hpp"
#include "io/container/strict_json.hpp"

namespace colibri {
namespace {

using nlohmann::json;

constexpr std::uint32_t kSpecVersion = 1;

template <class Enum>
struct Named {
  Enum value;
  std::string_view name;
};
template <class Enum>
using Names = std::span<const Named<Enum>>;

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
                                                         {kernels::WeightFormat::int8_g64, "int8_g64"}};

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
  const auto end = std::to_chars(text, text + sizeof(text) - 1, value).ptr;
  *end = '\0';
  return std::strtod(text, nullptr);
}

// Reads the members of one object; the first failure is kept and later reads do nothing.
class ObjectReader {
 public:
  // `object` may be null only when `status` is not ok.
  ObjectReader(const json* object, std::string path, Status& status)
      : object_(object), path_(std::move(path)), status_(status) {
    if (status_ && !object_->is_object())
      fail("must be an object, found " + std::string(json_kind(*object_)));
  }

  // To be called after all members were asked for.
  void refuse_unknown() {
    if (!status_) return;
    for (const auto& [key, value] : object_->items()) {
      if (!asked_.contains(key)) return fail("has an unknown key \"" + key + "\"");
    }
  }

  const json* member(const std::string& key) {
    if (!status_) return nullptr;
    asked_.insert(key);
    const auto found = object_->find(key);
    if (found == object_->end()) {
      fail("lacks the key \"" + key + "\"");
      return nullptr;
    }
    return &*found;
  }

  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) void read(const std::string& key, T& value) {
    const json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() > std::numeric_limits<T>::max()) {
      return fail("\"" + key + "\" must be a whole number up to " +
                  std::to_string(std::numeric_limits<T>::max()));
    }
    value = static_cast<T>(found->get<std::uint64_t>());
  }
  void read(const std::string& key, bool& value) {
    const json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) return fail("\"" + key + "\" must be true or false");
    value = found->get<bool>();
  }
  void read(const std::string& key, double& value) {
    const json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_number()) return fail("\"" + key + "\" must be a number");
    value = found->get<double>();
  }
  void read(const std::string& key, float& value) {
    double wide = value;
    read(key, wide);
    value = static_cast<float>(wide);
  }
  void read(const std::string& key, std::string& value) {
    const json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_string()) return fail("\"" + key + "\" must be a string");
    value = found->get<std::string>();
  }
  template <class Enum>
  void read(const std::string& key, std::type_identity_t<Names<Enum>> names, Enum& value) {
    std::string text;
    read(key, text);
    if (!status_) return;
    std::string allowed;
    for (const auto& [candidate, name] : names) {
      if (name == text) {
        value = candidate;
        return;
      }
      allowed += (allowed.empty() ? "" : ", ") + std::string(name);
    }
    fail("\"" + key + "\" is \"" + text + "\"; allowed are " + allowed);
  }
  // Calls `each(element, path)` for every element of a list of at most `limit`.
  template <class Each>
  void read_list(const std::string& key, std::size_t limit, Each each) {
    const json* found = member(key);
    if (found == nullptr) return;
    if (!found->is_array()) return fail("\"" + key + "\" must be a list");
    if (found->size() > limit) {
      return fail("\"" + key + "\" has " + std::to_string(found->size()) + " elements; at most " +
                  std::to_string(limit) + " are allowed");
    }
    for (std::size_t i = 0; i < found->size() && status_; ++i) {
      each((*found)[i], path_ + "." + key + "[" + std::to_string(i) + "]");
    }
  }
  ObjectReader object(const std::string& key) { return {member(key), path_ + "." + key, status_}; }
  void fail(std::string what) {
    if (status_) status_ = Status(ErrorCode::invalid_input, "model spec: " + path_ + " " + std::move(what));
  }

 private:
  const json* object_;
  std::string path_;
  Status& status_;
  std::set<std::string> asked_;
};

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
  COLIBRI_ASSIGN_OR_RETURN(const json document, parse_strict_json(text, "model spec"));
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
