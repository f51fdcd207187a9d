// ModelSpec: JSON and back, the shipped schema, the rules, and the layout of a record.
#include "io/container/model_spec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/temporary_folder.hpp"

namespace colibri {
namespace {

using nlohmann::json;

// A spec in which no value is a default.
ModelSpec full_spec() {
  ModelSpec spec;
  spec.family = "test \"family\"";
  spec.hidden_size = 80;
  spec.intermediate_size = 48;
  spec.vocab_size = 397;
  spec.max_seq_len = 1000;
  spec.num_experts = 8;
  spec.num_experts_per_token = 3;
  spec.rms_norm_eps = 1e-5F;
  spec.weight_dtype = kernels::WeightFormat::int8_g64;
  spec.embedding_dtype = kernels::WeightFormat::f32;
  spec.weights_option = "int8";
  spec.expert_chunk_size = 8192;
  spec.tied_head = true;
  spec.attention = {6, 3, 20, true, true, QkNorm::full_width, 1.5F, 0.1F};
  spec.rope.rotary_dim = 6;
  spec.rope.pairing = kernels::RopePairing::neighbours;
  spec.rope.attention_factor = 1.0 / 3.0;
  spec.rope.inverse_frequencies = {1.0, 1.0 / 7.0, 5e-324};
  spec.router = {kernels::RouterScore::sigmoid,
                 kernels::RouterGroups::sum_of_two_best,
                 kernels::RouterRenormalise::with_epsilon,
                 1e-20F,
                 2.5F,
                 8,
                 3,
                 4,
                 2};
  spec.shared_expert = {112, true};
  spec.layers = {{false, 96, 16}, {true, 0, 0}, {true, 0, 16}};
  spec.stop_tokens = {2, 396};
  spec.ignored_tensors = 7;
  return spec;
}

TEST(ModelSpec, JsonKeepsEveryValue) {
  const ModelSpec spec = full_spec();
  ASSERT_TRUE(validate(spec)) << validate(spec).to_string();
  const std::string text = model_spec_to_json(spec);
  const auto read = model_spec_from_json(text);
  ASSERT_TRUE(read) << read.status().to_string();
  EXPECT_EQ(model_spec_to_json(*read), text);
  EXPECT_EQ(read->rms_norm_eps, 1e-5F);
  EXPECT_EQ(read->rope.attention_factor, 1.0 / 3.0);
  EXPECT_EQ(read->rope.inverse_frequencies, spec.rope.inverse_frequencies);
  EXPECT_EQ(read->router.epsilon, 1e-20F);
  EXPECT_EQ(read->router.num_experts, 8u);
  EXPECT_EQ(read->router.groups, kernels::RouterGroups::sum_of_two_best);
  EXPECT_EQ(read->layers[2].sliding_window, 16u);
  EXPECT_EQ(read->stop_tokens, spec.stop_tokens);
}

TEST(ModelSpec, LayersAreCounted) {
  const ModelSpec spec = full_spec();
  EXPECT_EQ(spec.num_layers(), 3u);
  EXPECT_EQ(spec.num_moe_layers(), 2u);
  EXPECT_EQ(spec.next_moe_layer(0), 1u);
  EXPECT_EQ(spec.next_moe_layer(2), 2u);
  EXPECT_EQ(spec.next_moe_layer(3), 3u);
  EXPECT_EQ(spec.moe_ordinal(1), 0u);
  EXPECT_EQ(spec.moe_ordinal(2), 1u);
}

// The part of JSON Schema that the shipped schema uses.
void expect_fits(const json& schema, const json& value, const std::string& path) {
  if (schema.contains("enum")) {
    EXPECT_NE(std::find(schema["enum"].begin(), schema["enum"].end(), value), schema["enum"].end()) << path;
  }
  if (schema.contains("const")) {
    EXPECT_EQ(schema["const"], value) << path;
  }
  if (schema.contains("minimum")) {
    EXPECT_GE(value.get<double>(), schema["minimum"].get<double>()) << path;
  }
  if (schema.contains("maximum")) {
    EXPECT_LE(value.get<double>(), schema["maximum"].get<double>()) << path;
  }
  const std::string type = schema.value("type", "");
  if (type == "integer") {
    EXPECT_TRUE(value.is_number_integer()) << path;
  }
  if (type == "number") {
    EXPECT_TRUE(value.is_number()) << path;
  }
  if (type == "string") {
    EXPECT_TRUE(value.is_string()) << path;
  }
  if (type == "boolean") {
    EXPECT_TRUE(value.is_boolean()) << path;
  }
  if (type == "array") {
    ASSERT_TRUE(value.is_array()) << path;
    for (const json& element : value) expect_fits(schema["items"], element, path + "[]");
  }
  if (type == "object") {
    ASSERT_TRUE(value.is_object()) << path;
    for (const json& key : schema["required"])
      EXPECT_TRUE(value.contains(key.get<std::string>())) << path << key;
    for (const auto& [key, member] : value.items()) {
      ASSERT_TRUE(schema["properties"].contains(key)) << path << "." << key;
      expect_fits(schema["properties"][key], member, path + "." + key);
    }
  }
}

TEST(ModelSpec, FitsTheShippedSchema) {
  const json schema =
      json::parse(test::read_file(std::string(COLIBRI_TEST_DATA) + "/../configs/model_spec.schema.json"));
  ModelSpec int4 = full_spec();
  int4.weight_dtype = kernels::WeightFormat::int4_g32;
  int4.weights_option = "int4";
  for (const ModelSpec& spec : {full_spec(), int4}) {
    const std::string text = model_spec_to_json(spec);
    expect_fits(schema, json::parse(text), "$");
    const auto read = model_spec_from_json(text);
    ASSERT_TRUE(read) << read.status().to_string();
    EXPECT_EQ(read->weight_dtype, spec.weight_dtype);
  }
  // Each required key is required by the reader too.
  const json document = json::parse(model_spec_to_json(full_spec()));
  for (const json& key : schema["required"]) {
    json damaged = document;
    damaged.erase(key.get<std::string>());
    EXPECT_FALSE(model_spec_from_json(damaged.dump())) << key;
  }
  for (const char* part : {"attention", "rope", "router", "shared_expert"}) {
    for (const json& key : schema["properties"][part]["required"]) {
      json damaged = document;
      damaged[part].erase(key.get<std::string>());
      EXPECT_FALSE(model_spec_from_json(damaged.dump())) << part << key;
    }
  }
}

TEST(ModelSpec, RefusesDamagedJson) {
  const struct {
    const char* pointer;
    json value;
    const char* part;
  } cases[] = {
      {"/version", 2, "expected 1, found 2"},
      {"/hidden_size", -1, "hidden_size"},
      {"/hidden_size", 1ULL << 40, "hidden_size"},
      {"/hidden_size", 0, "hidden_size"},
      {"/hidden_size", "80", "hidden_size"},
      {"/hidden_size", 80.5, "hidden_size"},
      {"/unknown", 1, "unknown"},
      {"/attention", json::array(), "attention"},
      {"/attention/extra", 1, "extra"},
      {"/attention/qk_norm", "both", "per_head"},
      {"/attention/num_kv_heads", 4, "multiple"},
      {"/attention/head_dim", 1U << 20, "head_dim"},
      {"/attention/scale", 0.0, "scale"},
      {"/attention/qkv_bias", 1, "true or false"},
      {"/rope/rotary_dim", 5, "rotary_dim"},
      {"/rope/rotary_dim", 8, "inverse_frequencies"},
      {"/rope/inverse_frequencies/0", "x", "numbers"},
      {"/rope/inverse_frequencies/0", -1.0, "inverse_frequencies"},
      {"/router/num_groups", 3, "multiple"},
      {"/router/groups_per_token", 5, "groups_per_token"},
      {"/router/num_groups", 8, "fewer experts"},
      {"/num_experts_per_token", 9, "num_experts_per_token"},
      {"/num_experts", 5000, "num_experts"},
      {"/layers", json::array(), "layers"},
      {"/layers/0/moe", true, "dense_intermediate_size"},
      {"/layers/0/dense_intermediate_size", 0, "dense_intermediate_size"},
      {"/layers/1/sliding_window", 1U << 30, "sliding_window"},
      {"/stop_tokens/0", 397, "stop token"},
      {"/stop_tokens/0", -1, "stop_tokens"},
      {"/expert_chunk_size", 4097, "4096"},
      {"/expert_chunk_size", 0, "expert_chunk_size"},
      {"/embedding_dtype", "int8_g64", "embedding_dtype"},
      {"/embedding_dtype", "int4_g32", "embedding_dtype"},
      {"/weight_dtype", "int3", "int8_g64"},
      {"/rms_norm_eps", 2.0, "rms_norm_eps"},
  };
  for (const auto& bad : cases) {
    json document = json::parse(model_spec_to_json(full_spec()));
    document[json::json_pointer(bad.pointer)] = bad.value;
    const auto read = model_spec_from_json(document.dump());
    ASSERT_FALSE(read) << bad.pointer << bad.value;
    EXPECT_NE(read.status().to_string().find(bad.part), std::string::npos)
        << bad.pointer << ": " << read.status().to_string();
  }
  for (const char* text : {"", "[]", "{", "1", "{\"version\":1,\"version\":1}"})
    EXPECT_FALSE(model_spec_from_json(text));
}

TEST(ModelSpec, RefusesValuesThatJsonCannotHold) {
  const std::function<void(ModelSpec&)> damages[] = {
      [](ModelSpec& spec) { spec.rms_norm_eps = std::nanf(""); },
      [](ModelSpec& spec) { spec.attention.clip_qkv = -1.0F; },
      [](ModelSpec& spec) { spec.attention.clip_qkv = INFINITY; },
      [](ModelSpec& spec) { spec.rope.attention_factor = std::nan(""); },
      [](ModelSpec& spec) { spec.router.epsilon = INFINITY; },
      [](ModelSpec& spec) { spec.router.num_experts = 7; },
      [](ModelSpec& spec) { spec.router.num_groups = 8, spec.router.groups_per_token = 4; },  // groups of one
      [](ModelSpec& spec) {
        spec.layers.resize(kMaxLayers + 1, {true, 0, 0});
      },
  };
  for (const auto& damage : damages) {
    ModelSpec spec = full_spec();
    damage(spec);
    EXPECT_FALSE(validate(spec));
  }
}

TEST(ExpertLayout, PlacesThreeMatrices) {
  // hidden 80, width 48: bf16 panels of 16 outputs, 80 * 16 * 2 bytes for gate and up, 48 * 16 * 2 for down.
  const auto bf16 = expert_layout(kernels::WeightFormat::bf16, 80, 48);
  ASSERT_TRUE(bf16);
  EXPECT_EQ(bf16->gate_offset, 0u);
  EXPECT_EQ(bf16->up_offset, 3u * 2560);
  EXPECT_EQ(bf16->down_offset, 6u * 2560);
  EXPECT_EQ(bf16->payload_bytes, 6u * 2560 + 5 * 1536);
  EXPECT_EQ(bf16->record_bytes, 24576u);
  // int8: 1088 bytes per group of 64 inputs; 80 inputs are two groups, 48 one.
  const auto int8 = expert_layout(kernels::WeightFormat::int8_g64, 80, 48);
  ASSERT_TRUE(int8);
  EXPECT_EQ(int8->payload_bytes, 2u * 3 * 2 * 1088 + 5 * 1088);
  EXPECT_EQ(int8->record_bytes % 4096, 0u);
  // int4: 576 bytes for them.
  const auto int4 = expert_layout(kernels::WeightFormat::int4_g32, 80, 48);
  ASSERT_TRUE(int4);
  EXPECT_EQ(int4->payload_bytes, 2u * 3 * 2 * 576 + 5 * 576);
  for (const std::uint64_t offset : {int8->up_offset, int8->down_offset, int4->up_offset, int4->down_offset})
    EXPECT_EQ(offset % 64, 0u);
  EXPECT_FALSE(expert_layout(kernels::WeightFormat::f32, 0, 48));
  EXPECT_FALSE(expert_layout(kernels::WeightFormat::f32, 80, 1U << 31));
}

}  // namespace
}  // namespace colibri
