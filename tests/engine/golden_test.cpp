// Every golden checkpoint through the whole pipeline: tokens, picks and values as transformers has them.
// Tolerances are those of tests/golden/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "io/checkpoint/safetensors.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

constexpr float kRelativeTolerance = 1e-4F;  // of the tensor's largest absolute value
constexpr float kWeightTolerance = 1e-4F;
constexpr float kLogprobTolerance = 5e-3F;

struct Variant {
  std::string model, config, weights;
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const std::string& model : golden_names()) {
    for (const char* config : {"config.json", "config_v4.json"}) {
      for (const char* weights : {"auto", "f32"}) all.push_back({model, config, weights});
    }
  }
  return all;
}

class Golden : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    const Variant& variant = GetParam();
    const auto container = golden_container(variant.model, variant.config, variant.weights);
    ASSERT_FALSE(container.empty());
    engine_ = open_engine(container, {{"memory.experts", "50%"}});
    ASSERT_NE(engine_, nullptr);
    cases_ = golden_cases(variant.model);
    ASSERT_GE(cases_.size(), 4U);
  }
  std::unique_ptr<Engine> engine_;
  std::vector<GoldenCase> cases_;
};

TEST_P(Golden, GreedyTokensAreEqual) {
  std::vector<Request> requests;
  for (const GoldenCase& one : cases_) {
    requests.push_back(generate_request(one.prompt, static_cast<std::uint32_t>(one.greedy.size())));
    requests.back().logprobs = 8;
    requests.back().logprobs_given = true;
  }
  const JobRun run = run_job(*engine_, std::move(requests));
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    EXPECT_EQ(run.results[i].tokens, cases_[i].greedy) << cases_[i].name;
    ASSERT_FALSE(run.results[i].logprobs.empty());
    // The eight best of the first generated token: the same ids, and log-probabilities that differ like logits.
    const auto& top = run.results[i].logprobs[0].top;
    ASSERT_EQ(top.size(), 8U);
    for (std::size_t t = 0; t < 8; ++t) {
      EXPECT_EQ(top[t].first, cases_[i].top8_last[t].first);
      EXPECT_NEAR(top[t].second - top[0].second, cases_[i].top8_last[t].second - cases_[i].top8_last[0].second,
                  kLogprobTolerance);
    }
  }
}

TEST_P(Golden, PromptLogprobsAreClose) {
  std::vector<Request> requests;
  for (const GoldenCase& one : cases_) requests.push_back(score_request(one.prompt));
  const JobRun run = run_job(*engine_, std::move(requests));
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    ASSERT_EQ(run.results[i].prompt_logprobs.size(), cases_[i].prompt_logprobs.size());
    for (std::size_t t = 0; t < cases_[i].prompt_logprobs.size(); ++t) {
      EXPECT_NEAR(run.results[i].prompt_logprobs[t], cases_[i].prompt_logprobs[t], kLogprobTolerance);
    }
  }
}

// Largest difference, over the largest absolute value of the expected tensor.
float relative_difference(const std::vector<float>& found, const std::vector<float>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  if (found.size() != expected.size()) return INFINITY;
  float largest = 0;
  float difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::fabs(expected[i]));
    difference = std::max(difference, std::fabs(found[i] - expected[i]));
  }
  return difference / largest;
}

TEST_P(Golden, EveryIntermediateValueIsClose) {
  const auto with_routing =
      std::find_if(cases_.begin(), cases_.end(), [](const GoldenCase& one) { return !one.routing.empty(); });
  ASSERT_NE(with_routing, cases_.end());
  ValueRecorder recorder;
  run_job(*engine_, {score_request(with_routing->prompt)}, {.trace = &recorder});
  const auto file = SafetensorsFile::open(golden_folder(GetParam().model) / "golden.safetensors");
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();

  EXPECT_LT(relative_difference(recorder.tensor("logits", 0), file->read_f32("logits").value()), kRelativeTolerance);
  std::vector<float> hidden;
  for (std::uint32_t layer = 0; layer <= engine_->spec().num_layers(); ++layer) {
    const std::vector<float> one = recorder.tensor("hidden_states", layer);
    hidden.insert(hidden.end(), one.begin(), one.end());
  }
  EXPECT_LT(relative_difference(hidden, file->read_f32("hidden_states").value()), kRelativeTolerance);
  for (const GoldenRouting& routing : with_routing->routing) {
    for (const char* name : {"router_logits", "moe_input", "moe_output"}) {
      const std::string tensor = std::string(name) + "." + std::to_string(routing.layer);
      EXPECT_LT(relative_difference(recorder.tensor(name, routing.layer), file->read_f32(tensor).value()),
                kRelativeTolerance)
          << tensor;
    }
    for (std::uint32_t token = 0; token < routing.experts.size(); ++token) {
      const auto& picks = recorder.picks[{routing.layer, token}];
      ASSERT_EQ(picks.size(), routing.experts[token].size());
      for (std::size_t k = 0; k < picks.size(); ++k) {
        const auto pick = picks.find(routing.experts[token][k]);
        ASSERT_NE(pick, picks.end()) << "layer " << routing.layer << " token " << token;
        EXPECT_NEAR(pick->second, routing.weights[token][k], kWeightTolerance);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, ::testing::ValuesIn(variants()), [](const auto& info) {
  const std::string style = info.param.config == "config.json" ? "v5" : "v4";
  return info.param.model + "_" + style + "_" + info.param.weights;
});

TEST(GoldenSet, HasTheFourFamilies) {
  // 15 folders: a golden that went missing must not pass unseen.
  EXPECT_EQ(golden_names().size(), 15U);
}

}  // namespace
}  // namespace colibri::testing
