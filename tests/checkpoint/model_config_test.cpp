// config.json of every golden in both styles against hand-written values, and files to be refused.
#include "io/checkpoint/model_config.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/temporary_folder.hpp"

namespace colibri {
namespace {

using kernels::RouterRenormalise;
using kernels::RouterScore;
using nlohmann::json;

const std::string kGolden = std::string(COLIBRI_TEST_DATA) + "/golden/";

Result<ParsedConfig> parse(const json& config, const std::string& generation = "") {
  return parse_model_config(config.dump(), "config.json", generation, "generation_config.json");
}

json golden_config(const std::string& folder, bool old_style) {
  return json::parse(test::read_file(kGolden + folder + (old_style ? "/config_v4.json" : "/config.json")));
}

struct Expected {
  const char* folder;
  std::uint32_t hidden, width, vocab, layers, experts, per_token, heads, kv_heads, head_dim;
  bool qkv_bias;
  QkNorm qk_norm;
  float clip, eps;
  RouterRenormalise renormalise;
  std::uint32_t shared;
  std::vector<std::uint32_t> dense;  // width per layer, 0: experts
  std::uint32_t window;
  bool tied;
  std::uint32_t max_seq_len;
};

constexpr auto kYes = RouterRenormalise::yes;
constexpr auto kNo = RouterRenormalise::no;
constexpr auto kHead = QkNorm::per_head;
constexpr auto kFull = QkNorm::full_width;
constexpr auto kNone = QkNorm::none;

// Copied by hand from the config files and the golden README.
const Expected kExpected[] = {
    {"qwen3_moe", 64, 48, 384, 3, 12, 3, 4, 2, 32, false, kHead, 0, 1e-6F, kYes, 0, {0, 0, 0}, 0, false, 256},
    {"qwen3_moe_tied", 64, 48,   384, 3, 12, 3, 4, 2, 32, false, kHead, 0, 1e-6F, kNo, 0,
     {96, 0, 0},       0,  true, 256},
    {"qwen3_moe_sharded",
     64,
     48,
     384,
     2,
     16,
     4,
     4,
     2,
     32,
     false,
     kHead,
     0,
     1e-6F,
     kYes,
     0,
     {0, 0},
     0,
     false,
     256},
    {"qwen3_moe_fused", 64, 48,    384, 3, 12, 3, 4, 2, 32, false, kHead, 0, 1e-6F, kYes, 0,
     {0, 0, 0},         0,  false, 256},
    {"qwen3_moe_odd", 80,    48, 397,   3,    9, 2,         5, 1,     24,
     false,           kHead, 0,  1e-6F, kYes, 0, {0, 0, 0}, 0, false, 256},
    {"qwen3_moe_f16", 64,    48, 384,   3,    8, 2,         4, 2,     32,
     false,           kHead, 0,  1e-6F, kYes, 0, {0, 0, 0}, 0, false, 256},
    {"qwen3_moe_yarn", 64, 48,    384, 3, 12, 3, 4, 2, 32, false, kHead, 0, 1e-6F, kYes, 0,
     {0, 0, 0},        0,  false, 4096},
    {"qwen2_moe", 64, 48, 384, 3, 8, 3, 4, 2, 16, true, kNone, 0, 1e-6F, kNo, 80, {0, 112, 0}, 0, false, 256},
    {"qwen2_moe_step2", 64, 48,    384, 4, 8, 3, 4, 2, 16, true, kNone, 0, 1e-6F, kYes, 80,
     {112, 0, 112, 0},  0,  false, 256},
    {"mixtral", 64, 96, 384, 3, 8, 2, 4, 2, 16, false, kNone, 0, 1e-5F, kYes, 0, {0, 0, 0}, 0, false, 256},
    {"mixtral_fused", 64,    96, 384,   3,    8, 2,         4, 2,     16,
     false,           kNone, 0,  1e-5F, kYes, 0, {0, 0, 0}, 0, false, 256},
    {"mixtral_sw", 64,    96, 384,   3,    8, 2,         4,  2,     16,
     false,        kNone, 0,  1e-5F, kYes, 0, {0, 0, 0}, 16, false, 256},
    {"mixtral_llama3rope",
     64,
     96,
     384,
     3,
     8,
     2,
     4,
     2,
     16,
     false,
     kNone,
     0,
     1e-5F,
     kYes,
     0,
     {0, 0, 0},
     0,
     false,
     1024},
    {"olmoe", 64, 48, 384, 2, 16, 4, 4, 4, 16, false, kFull, 0, 1e-5F, kNo, 0, {0, 0}, 0, false, 256},
    {"olmoe_f32", 64, 48, 384, 2, 8, 2, 4, 4, 16, false, kFull, 1.5F, 1e-5F, kNo, 0, {0, 0}, 0, false, 256},
};

class GoldenConfig : public ::testing::TestWithParam<std::tuple<Expected, bool>> {};

TEST_P(GoldenConfig, HasTheValuesOfItsFile) {
  const auto& [expected, old_style] = GetParam();
  const auto parsed = parse(golden_config(expected.folder, old_style),
                            test::read_file(kGolden + expected.folder + "/generation_config.json"));
  ASSERT_TRUE(parsed) << parsed.status().to_string();
  const ModelSpec& spec = parsed->spec;
  EXPECT_EQ(spec.family, std::string(expected.folder).substr(0, spec.family.size()));
  EXPECT_EQ(spec.hidden_size, expected.hidden);
  EXPECT_EQ(spec.intermediate_size, expected.width);
  EXPECT_EQ(spec.vocab_size, expected.vocab);
  EXPECT_EQ(spec.max_seq_len, expected.max_seq_len);
  EXPECT_EQ(spec.num_experts, expected.experts);
  EXPECT_EQ(spec.num_experts_per_token, expected.per_token);
  EXPECT_EQ(spec.rms_norm_eps, expected.eps);
  EXPECT_EQ(spec.tied_head, expected.tied);
  EXPECT_EQ(spec.attention.num_heads, expected.heads);
  EXPECT_EQ(spec.attention.num_kv_heads, expected.kv_heads);
  EXPECT_EQ(spec.attention.head_dim, expected.head_dim);
  EXPECT_EQ(spec.attention.qkv_bias, expected.qkv_bias);
  EXPECT_FALSE(spec.attention.output_bias);
  EXPECT_EQ(spec.attention.qk_norm, expected.qk_norm);
  EXPECT_EQ(spec.attention.clip_qkv, expected.clip);
  EXPECT_FLOAT_EQ(spec.attention.scale, 1.0F / std::sqrt(static_cast<float>(expected.head_dim)));
  EXPECT_EQ(spec.router.score, RouterScore::softmax_all);
  EXPECT_EQ(spec.router.renormalise, expected.renormalise);
  EXPECT_EQ(spec.router.num_experts, expected.experts);
  EXPECT_EQ(spec.shared_expert.intermediate_size, expected.shared);
  EXPECT_EQ(spec.shared_expert.sigmoid_gate, expected.shared > 0);
  EXPECT_EQ(spec.rope.rotary_dim, expected.head_dim);
  EXPECT_EQ(spec.stop_tokens, std::vector<std::int32_t>{2});
  ASSERT_EQ(spec.layers.size(), expected.layers);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    EXPECT_EQ(spec.layers[i].moe, expected.dense[i] == 0) << i;
    EXPECT_EQ(spec.layers[i].dense_intermediate_size, expected.dense[i]) << i;
    EXPECT_EQ(spec.layers[i].sliding_window, expected.window) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenConfig,
                         ::testing::Combine(::testing::ValuesIn(kExpected), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).folder) +
                                  (std::get<1>(info.param) ? "_v4" : "_v5");
                         });

TEST(RopeConfig, DefaultFrequencies) {
  const auto parsed = parse(golden_config("qwen3_moe", false));
  ASSERT_TRUE(parsed);
  const auto& frequencies = parsed->spec.rope.inverse_frequencies;
  ASSERT_EQ(frequencies.size(), 16u);
  EXPECT_DOUBLE_EQ(frequencies[0], 1.0);
  EXPECT_NEAR(frequencies[8], 1e-3, 1e-15);  // 1e6^(-16/32)
  EXPECT_DOUBLE_EQ(parsed->spec.rope.attention_factor, 1.0);
}

// theta 10000, head 32, factor 4, original context 1024: the ramp runs from dimension
// floor(32 ln(1024 / (32 * 2 pi)) / (2 ln 10000)) = floor(2.83) = 2 to ceil(8.85) = 9.
TEST(RopeConfig, YarnFrequencies) {
  for (const bool old_style : {false, true}) {
    const auto parsed = parse(golden_config("qwen3_moe_yarn", old_style));
    ASSERT_TRUE(parsed);
    const RopeSpec& rope = parsed->spec.rope;
    EXPECT_NEAR(rope.attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-15);
    for (int i = 0; i < 16; ++i) {
      const double plain = std::pow(10000.0, -i / 16.0);
      const double ramp = i <= 2 ? 0.0 : i >= 9 ? 1.0 : (i - 2) / 7.0;
      EXPECT_NEAR(rope.inverse_frequencies[i], plain * (1 - ramp) + plain / 4 * ramp, plain * 1e-14) << i;
    }
  }
}

// theta 10000, head 16, factor 8, original 128, bands at wavelengths 128 / 4 and 128 / 1.
TEST(RopeConfig, Llama3Frequencies) {
  const auto parsed = parse(golden_config("mixtral_llama3rope", true));
  ASSERT_TRUE(parsed);
  for (int i = 0; i < 8; ++i) {
    const double plain = std::pow(10000.0, -i / 8.0);
    const double wavelength = 2 * M_PI / plain;
    double expected = plain;
    if (wavelength > 128) expected = plain / 8;
    if (wavelength >= 32 && wavelength <= 128) {
      const double smooth = (128 / wavelength - 1) / 3;
      expected = (1 - smooth) * plain / 8 + smooth * plain;
    }
    EXPECT_NEAR(parsed->spec.rope.inverse_frequencies[i], expected, expected * 1e-14) << i;
  }
}

TEST(ModelConfig, NullsAndZerosMeanAbsent) {
  json config = golden_config("mixtral", true);
  config["head_dim"] = nullptr;
  config["sliding_window"] = 0;
  config["num_key_value_heads"] = nullptr;
  config["eos_token_id"] = nullptr;
  config["quantization_config"] = nullptr;
  config["some_future_switch"] = false;
  config["some_future_list"] = json::array();
  const auto parsed = parse(config);
  ASSERT_TRUE(parsed) << parsed.status().to_string();
  EXPECT_EQ(parsed->spec.attention.head_dim, 16u);
  EXPECT_EQ(parsed->spec.attention.num_kv_heads, 4u);
  EXPECT_EQ(parsed->spec.layers[0].sliding_window, 0u);
  EXPECT_TRUE(parsed->spec.stop_tokens.empty());
}

TEST(ModelConfig, StopTokensOfBothFilesAreJoined) {
  json config = golden_config("qwen3_moe", false);
  config["eos_token_id"] = {5, 6};
  const auto parsed = parse(config, R"({"eos_token_id": [6, 7], "temperature": 0.5})");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->spec.stop_tokens, (std::vector<std::int32_t>{5, 6, 7}));
}

TEST(ModelConfig, DefaultsOfTheFamilyAreTakenAndSaid) {
  json config = golden_config("qwen2_moe_step2", true);
  ASSERT_FALSE(config.contains("qkv_bias"));
  config.erase("norm_topk_prob");
  const auto parsed = parse(config);
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(parsed->spec.attention.qkv_bias);
  EXPECT_EQ(parsed->spec.router.renormalise, RouterRenormalise::no);
  ASSERT_EQ(parsed->notes.size(), 2u);
}

TEST(ModelConfig, LayerTypesSettleTheWindow) {
  json config = golden_config("qwen2_moe", false);
  config["use_sliding_window"] = true;
  config["sliding_window"] = 8;
  config["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  const auto parsed = parse(config);
  ASSERT_TRUE(parsed) << parsed.status().to_string();
  EXPECT_EQ(parsed->spec.layers[0].sliding_window, 8u);
  EXPECT_EQ(parsed->spec.layers[1].sliding_window, 0u);
  config.erase("layer_types");
  EXPECT_FALSE(parse(config));
}

TEST(ModelConfig, BiasesFollowTheirKey) {
  json config = golden_config("qwen3_moe", false);
  config["attention_bias"] = true;
  const auto parsed = parse(config);
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(parsed->spec.attention.qkv_bias);
  EXPECT_TRUE(parsed->spec.attention.output_bias);
}

struct Refused {
  const char* what;
  const char* folder;
  json patch;        // merged into the config: null removes a key
  const char* part;  // of the message
};

TEST(ModelConfig, RefusesWhatItCannotDo) {
  const Refused cases[] = {
      {"family",
       "qwen3_moe",
       {{"model_type", "deepseek_v3"}},
       "supported are mixtral, olmoe, qwen2_moe, qwen3_moe"},
      {"no family", "qwen3_moe", {{"model_type", nullptr}}, "supported are"},
      {"quantisation", "qwen3_moe", {{"quantization_config", {{"quant_method", "gptq"}}}}, "gptq"},
      {"quantisation, no name", "qwen3_moe", {{"quantization_config", 4}}, "quantization_config"},
      {"activation", "mixtral", {{"hidden_act", "gelu"}}, "gelu"},
      {"rope type", "qwen3_moe", {{"rope_parameters", {{"rope_type", "longrope"}}}}, "longrope"},
      {"dynamic rope", "qwen3_moe_yarn", {{"rope_parameters", {{"rope_type", "dynamic"}}}}, "dynamic"},
      {"unknown rope key",
       "qwen3_moe_yarn",
       {{"rope_parameters", {{"mrope_section", {1, 2}}}}},
       "mrope_section"},
      {"partial rope",
       "qwen3_moe",
       {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}},
       "partial_rotary_factor"},
      {"nested rope",
       "qwen3_moe",
       {{"rope_parameters", {{"full_attention", {{"rope_theta", 1.0}}}}}},
       "full_attention"},
      {"no theta", "qwen3_moe", {{"rope_parameters", {{"rope_theta", nullptr}}}}, "rope_theta is missing"},
      {"unknown number", "qwen3_moe", {{"final_logit_softcapping", 30.0}}, "final_logit_softcapping"},
      {"unknown scale", "mixtral", {{"residual_multiplier", 0.22}}, "residual_multiplier"},
      {"key of another family", "mixtral", {{"clip_qkv", 3.0}}, "clip_qkv"},
      {"shared experts of another family", "qwen3_moe", {{"n_shared_experts", 1}}, "n_shared_experts"},
      {"window of another family", "olmoe", {{"sliding_window", 16}}, "sliding_window"},
      {"missing key", "qwen3_moe", {{"moe_intermediate_size", nullptr}}, "moe_intermediate_size is missing"},
      {"no experts", "qwen3_moe", {{"num_local_experts", nullptr}}, "num_experts is missing"},
      {"two counts of experts", "qwen3_moe", {{"num_experts", 13}}, "differ"},
      {"more picks than experts", "qwen3_moe", {{"num_experts_per_tok", 13}}, "num_experts_per_tok"},
      {"negative", "qwen3_moe", {{"hidden_size", -64}}, "hidden_size"},
      {"fraction", "qwen3_moe", {{"hidden_size", 64.5}}, "hidden_size"},
      {"string", "qwen3_moe", {{"vocab_size", "384"}}, "vocab_size"},
      {"huge", "qwen3_moe", {{"vocab_size", 1ULL << 60}}, "vocab_size"},
      {"too many layers", "qwen3_moe", {{"num_hidden_layers", 100000}}, "num_hidden_layers"},
      {"heads", "qwen3_moe", {{"num_key_value_heads", 3}}, "num_kv_heads"},
      {"odd head", "qwen3_moe", {{"head_dim", 31}}, "head_dim"},
      {"stop token outside", "qwen3_moe", {{"eos_token_id", 384}}, "eos_token_id"},
      {"layer types",
       "qwen2_moe",
       {{"layer_types", {"linear_attention", "full_attention", "full_attention"}}},
       "linear_attention"},
      {"layer types without window",
       "qwen2_moe",
       {{"layer_types", {"sliding_attention", "full_attention", "full_attention"}}},
       "no sliding window"},
      {"layers", "qwen3_moe", {{"mlp_only_layers", {0, 1, 2}}}, "no layer has experts"},
      {"layer list", "qwen3_moe", {{"mlp_only_layers", {"a"}}}, "mlp_only_layers"},
      {"norm switched off", "qwen3_moe", {{"use_qk_norm", false}}, "use_qk_norm"},
      {"eps", "qwen3_moe", {{"rms_norm_eps", -1.0}}, "rms_norm_eps"},
      {"flag", "qwen3_moe", {{"norm_topk_prob", 1}}, "norm_topk_prob"},
  };
  for (const Refused& refused : cases) {
    json config = golden_config(refused.folder, false);
    config.merge_patch(refused.patch);
    const auto parsed = parse(config);
    ASSERT_FALSE(parsed) << refused.what;
    EXPECT_NE(parsed.status().to_string().find(refused.part), std::string::npos)
        << refused.what << ": " << parsed.status().to_string();
  }
}

TEST(ModelConfig, NamesAllProblemsAtOnce) {
  json config = golden_config("qwen3_moe", false);
  config["hidden_act"] = "relu";
  config["head_dim"] = "x";
  config["logit_scale"] = 2.0;
  const std::string message = parse(config).status().to_string();
  for (const char* part : {"relu", "head_dim", "logit_scale"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(ModelConfig, RefusesTextThatIsNoConfig) {
  for (const char* text :
       {"", "{", "[]", "nul", "{\"model_type\": \"olmoe\", \"model_type\": \"olmoe\"}", "3"}) {
    EXPECT_FALSE(parse_model_config(text, "config.json", "", "")) << text;
  }
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "{\"a\":";
  EXPECT_NE(parse_model_config(deep, "config.json", "", "").status().to_string().find("nested deeper"),
            std::string::npos);
}

}  // namespace
}  // namespace colibri
