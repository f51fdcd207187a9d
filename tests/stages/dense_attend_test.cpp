// embed, attend and sample against a double-precision transformer, and against themselves:
// how rows are packed into steps, waves and tiles must not change a bit.
#include <gtest/gtest.h>

#include <random>

#include "dense_pipeline.hpp"
#include "dense_reference.hpp"
#include "tests/support/test_scale.hpp"

namespace colibri::testing {
namespace {

std::vector<std::int32_t> random_tokens(std::uint32_t count, std::uint32_t vocab, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> tokens(count);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % vocab);
  return tokens;
}

Request request(std::uint64_t index, Task task, std::vector<std::int32_t> tokens,
                std::uint32_t max_tokens = 8) {
  Request request;
  request.index = index;
  request.id = std::to_string(index);
  request.task = task;
  request.tokens = std::move(tokens);
  request.max_tokens = max_tokens;
  request.max_tokens_given = true;
  return request;
}

void expect_close(const std::vector<float>& row, const Row& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(row.size(), expected.size()) << what;
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < row.size(); ++i) {
    ASSERT_NEAR(row[i], expected[i], tolerance * largest) << what << " element " << i;
  }
}

struct Form {
  std::string name;
  ModelSpec spec;
};

std::vector<Form> forms() {
  std::vector<Form> forms;
  auto add = [&](const char* name, std::vector<bool> moe, auto change) {
    forms.push_back({name, small_spec(moe)});
    change(forms.back().spec);
  };
  add("plain", {false, false}, [](ModelSpec&) {});
  add("moe_layers_between", {true, false, true, true, false}, [](ModelSpec&) {});
  add("last_layer_moe", {false, true}, [](ModelSpec&) {});
  add("per_head_norm", {true, false}, [](ModelSpec& s) { s.attention.qk_norm = QkNorm::per_head; });
  add("full_width_norm_clip", {true, false}, [](ModelSpec& s) {
    s.attention.qk_norm = QkNorm::full_width;
    s.attention.clip_qkv = 0.75F;
  });
  add("biases", {false, true}, [](ModelSpec& s) { s.attention.qkv_bias = s.attention.output_bias = true; });
  add("window", {false, true, false}, [](ModelSpec& s) {
    s.layers[0].sliding_window = 5;
    s.layers[1].sliding_window = 16;
  });
  add("partial_neighbour_rope", {false}, [](ModelSpec& s) {
    s.rope.pairing = kernels::RopePairing::neighbours;
    s.rope.rotary_dim = 8;
    s.rope.inverse_frequencies.resize(4);
    s.rope.attention_factor = 1.2;
  });
  add("one_kv_head_tied", {false, false}, [](ModelSpec& s) {
    s.attention.num_kv_heads = 1;
    s.tied_head = true;
  });
  add("odd_sizes_bf16", {false, true}, [](ModelSpec& s) {
    s.hidden_size = 37;
    s.layers[0].dense_intermediate_size = 21;
    s.weight_dtype = kernels::WeightFormat::bf16;
    s.embedding_dtype = kernels::WeightFormat::bf16;
  });
  return forms;
}

TEST(DenseAttend, EveryFormMatchesDoublePrecision) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    const DenseModel model(form.spec, 11);
    DenseJob job(model, 13, 5, 1, 32);
    KeptTrace trace;
    job.services.trace = &trace;
    const auto first = random_tokens(41, form.spec.vocab_size, 1),
               second = random_tokens(18, form.spec.vocab_size, 2);
    const PipelineRun run =
        run_dense_pipeline(job.services, {request(0, Task::score, first), request(1, Task::embed, second)});
    ASSERT_TRUE(run.ended);
    ASSERT_EQ(run.results.size(), 2U);
    for (const auto& [index, tokens] : {std::pair{0, first}, std::pair{1, second}}) {
      const ReferenceResult expected = reference_forward(model, tokens);
      auto& rows = trace.rows[static_cast<std::uint64_t>(index)];
      for (std::uint32_t t = 0; t < tokens.size(); ++t) {
        expect_close(rows["hidden_states.0"][t], expected.hidden[0][t], 1e-6, "embedding");
        for (std::uint32_t layer = 0; layer < form.spec.num_layers(); ++layer) {
          // A MoE layer adds nothing here: its input is the state after the layer.
          const bool moe = form.spec.layers[layer].moe;
          const std::string name =
              moe ? "moe_input." + std::to_string(layer) : "hidden_states." + std::to_string(layer + 1);
          expect_close(rows[name][t], expected.hidden[layer + 1][t], 1e-5, name);
        }
        expect_close(rows["logits.0"][t], expected.logits[t], 1e-5, "logits");
      }
      if (index == 0) {
        const RequestResult& result = run.results.at(0);
        ASSERT_EQ(result.prompt_logprobs.size(), tokens.size() - 1);
        for (std::size_t t = 1; t < tokens.size(); ++t) {
          EXPECT_NEAR(result.prompt_logprobs[t - 1], reference_logprob(expected.logits[t - 1], tokens[t]),
                      1e-4);
        }
      } else {
        Row mean(form.spec.hidden_size, 0.0);
        for (const Row& row : expected.final_states) {
          for (std::size_t i = 0; i < row.size(); ++i) mean[i] += row[i] / static_cast<double>(tokens.size());
        }
        expect_close(run.results.at(1).embedding, mean, 1e-5, "mean embedding");
      }
    }
  }
}

TEST(DenseAttend, GreedyTokensAreThoseOfDoublePrecision) {
  const DenseModel model(small_spec({false, true, false}), 5);
  DenseJob job(model, 16, 4, 1, 16);
  const auto prompt = random_tokens(21, 61, 9);
  const PipelineRun run = run_dense_pipeline(job.services, {request(0, Task::generate, prompt, 12)});
  std::vector<std::int32_t> tokens = prompt;
  for (int i = 0; i < 12; ++i) {
    const Row logits = reference_forward(model, tokens).logits.back();
    tokens.push_back(
        static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  EXPECT_EQ(run.results.at(0).tokens, std::vector<std::int32_t>(tokens.begin() + 21, tokens.end()));
  EXPECT_EQ(run.results.at(0).finish_reason, FinishReason::length);
}

// Everything that a run reports, bit for bit.
using Outputs = std::map<std::uint64_t, std::map<std::string, std::map<std::uint32_t, std::vector<float>>>>;

Outputs outputs_of(const DenseModel& model, const std::vector<Request>& requests, std::uint32_t max_rows,
                   std::uint32_t wave_rows, std::uint32_t in_flight, std::uint64_t seed, kernels::KvFormat kv,
                   std::string_view kernels_name) {
  DenseJob job(model, max_rows, wave_rows, in_flight, 40, kv);
  job.services.kernels = kernels::find_kernel_table(kernels_name);
  KeptTrace trace;
  job.services.trace = &trace;
  const PipelineRun run = run_dense_pipeline(job.services, requests, seed);
  EXPECT_TRUE(run.ended);
  EXPECT_EQ(run.results.size(), requests.size());
  for (const auto& [index, result] : run.results) {
    trace.rows[index]["prompt_logprobs"][0] = result.prompt_logprobs;
    trace.rows[index]["embedding"][0] = result.embedding;
    trace.rows[index]["tokens"][0].assign(result.tokens.begin(), result.tokens.end());
    for (const TokenLogprob& token : result.logprobs)
      trace.rows[index]["logprobs"][0].push_back(token.logprob);
  }
  return trace.rows;
}

class DenseInvariance : public ::testing::TestWithParam<kernels::WeightFormat> {};

TEST_P(DenseInvariance, PackingOfRowsChangesNoBit) {
  ModelSpec spec = small_spec({false, true, false});
  spec.weight_dtype = GetParam();
  spec.attention.qk_norm = QkNorm::per_head;
  spec.layers[1].sliding_window = 7;
  const DenseModel model(spec, 3);
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 9; ++i) {
    const Task task = i % 3 == 0 ? Task::generate : i % 3 == 1 ? Task::score : Task::embed;
    requests.push_back(request(i, task, random_tokens(static_cast<std::uint32_t>(2 + 9 * i), 61, i), 6));
    requests.back().temperature = i == 3 ? 0.9F : 0.0F;
    requests.back().seed = i;
    requests.back().logprobs_given = true;
    requests.back().logprobs = 2;
  }
  const auto seeds = static_cast<std::uint64_t>(scaled(2, 1));
  for (const kernels::KvFormat kv : {kernels::KvFormat::f32, kernels::KvFormat::bf16}) {
    // All rows of all prompts in one step and one wave.
    const Outputs expected = outputs_of(model, requests, 512, 512, 1, 1, kv, "scalar");
    for (const auto& [max_rows, wave_rows, in_flight] :
         {std::tuple{512U, 64U, 1U}, {64U, 7U, 1U}, {33U, 64U, 1U}, {10U, 1U, 2U}, {64U, 8U, 2U}}) {
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        SCOPED_TRACE(std::to_string(max_rows) + " rows, waves of " + std::to_string(wave_rows));
        EXPECT_EQ(outputs_of(model, requests, max_rows, wave_rows, in_flight, seed, kv, "scalar"), expected);
      }
    }
    for (const kernels::KernelTable* table : kernels::all_kernel_tables()) {
      if (!table->supported()) continue;
      SCOPED_TRACE(table->name);
      EXPECT_EQ(outputs_of(model, requests, 40, 16, 1, 1, kv, table->name), expected);
    }
    for (const Request& alone : requests) {
      const Outputs single = outputs_of(model, {alone}, 40, 16, 1, 1, kv, "scalar");
      EXPECT_EQ(single.at(alone.index), expected.at(alone.index)) << alone.index;
    }
  }
}

std::string format_name(const ::testing::TestParamInfo<kernels::WeightFormat>& info) {
  return std::string(kernels::weight_format_name(info.param));
}
INSTANTIATE_TEST_SUITE_P(Formats, DenseInvariance,
                         ::testing::Values(kernels::WeightFormat::f32, kernels::WeightFormat::bf16,
                                           kernels::WeightFormat::int8_g64, kernels::WeightFormat::int4_g32),
                         format_name);

// Work large enough to be cut into many tiles, also between the heads of a row, run in shuffled orders;
// against waves of one row, where there is little to cut.
TEST(DenseAttend, TilesInAnyOrderGiveTheSame) {
  const auto longest = static_cast<std::uint32_t>(scaled(250, 130));  // more than a step has
  for (const auto format :
       {kernels::WeightFormat::f32, kernels::WeightFormat::int8_g64, kernels::WeightFormat::int4_g32}) {
    ModelSpec spec = small_spec({false, true});
    spec.hidden_size = 320;
    spec.vocab_size = 1501;
    spec.weight_dtype = format;
    spec.layers[0].dense_intermediate_size = 500;
    spec.attention.num_heads = 6;
    spec.attention.num_kv_heads = 3;
    const DenseModel model(spec, 8);
    const std::vector<Request> requests = {request(0, Task::score, random_tokens(longest, 1501, 1)),
                                           request(1, Task::score, random_tokens(30, 1501, 2))};
    const Outputs expected = outputs_of(model, requests, 512, 1, 1, 1, kernels::KvFormat::f32, "scalar");
    for (const std::uint64_t seed : {2U, 3U}) {
      EXPECT_EQ(outputs_of(model, requests, 128, 100, 1, seed, kernels::KvFormat::f32, "scalar"), expected);
    }
    EXPECT_EQ(outputs_of(model, requests, 40, 3, 1, 4, kernels::KvFormat::f32, "scalar"), expected);
  }
}

// With integer weights only the rounding of activations is left, against the stored weights in double
// precision.
TEST(DenseAttend, IntegerWeightsStayNear) {
  for (const auto format : {kernels::WeightFormat::int8_g64, kernels::WeightFormat::int4_g32}) {
    ModelSpec spec = small_spec({false, true});
    spec.weight_dtype = format;
    const DenseModel model(spec, 21);
    DenseJob job(model, 64, 16, 1, 16);
    KeptTrace trace;
    job.services.trace = &trace;
    const auto tokens = random_tokens(30, 61, 4);
    run_dense_pipeline(job.services, {request(0, Task::score, tokens)});
    const ReferenceResult expected = reference_forward(model, tokens);
    for (std::uint32_t t = 0; t < tokens.size(); ++t) {
      expect_close(trace.rows[0]["logits.0"][t], expected.logits[t], 0.05,
                   std::string(kernels::weight_format_name(format)) + " logits");
    }
  }
}

}  // namespace
}  // namespace colibri::testing
