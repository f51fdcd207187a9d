// The trained demo model against what transformers computed on it in f32.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "io/checkpoint/safetensors.hpp"
#include "io/text/tokenizer.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

namespace fs = std::filesystem;

fs::path demo_folder() { return fs::path(COLIBRI_TEST_DATA).parent_path() / "configs" / "demo"; }

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

nlohmann::json demo_golden() { return nlohmann::json::parse(read_file(demo_folder() / "golden.json")); }

// Whether all documents are scored and all prompts continued; a sanitizer, which takes fifteen times as long, has
// enough of a few.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kWholeDemo = false;
#else
constexpr bool kWholeDemo = true;
#endif

// Documents of the held-out text, separated by form feeds.
std::vector<std::string> documents() {
  std::vector<std::string> all(1);
  for (const char c : read_file(demo_folder() / "heldout.txt")) {
    if (c == '\f') {
      all.emplace_back();
    } else {
      all.back() += c;
    }
  }
  if (!kWholeDemo) all.resize(2);
  return all;
}

// Log-prob sum of each document, one request each, and the number of scored tokens.
std::pair<std::vector<double>, std::size_t> score_documents(Engine& engine) {
  std::vector<Request> requests;
  for (const std::string& text : documents()) {
    requests.push_back(score_request(engine.tokenizer()->encode(text, false).value()));
  }
  const JobRun run = run_job(engine, std::move(requests));
  std::vector<double> sums;
  std::size_t scored = 0;
  for (const RequestResult& result : run.results) {
    double sum = 0;
    for (const float logprob : result.prompt_logprobs) sum += logprob;
    sums.push_back(sum);
    scored += result.prompt_logprobs.size();
  }
  return {sums, scored};
}

double perplexity(const std::vector<double>& sums, std::size_t scored) {
  double total = 0;
  for (const double sum : sums) total += sum;
  return std::exp(-total / static_cast<double>(scored));
}

std::unique_ptr<Engine> demo_engine(const std::string& weights) {
  return open_engine(container_of(demo_folder() / "checkpoint", "config.json", weights),
                     {{"memory.experts", "25%"}});
}

TEST(Demo, LogProbabilitiesOfHeldOutDocuments) {
  const auto engine = demo_engine("auto");
  ASSERT_NE(engine, nullptr);
  const nlohmann::json golden = demo_golden();
  const auto [sums, scored] = score_documents(*engine);
  ASSERT_EQ(sums.size(), kWholeDemo ? golden.at("heldout").size() : documents().size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    // The sum of several hundred terms that are each given to 5e-3 at worst and 1e-4 typically.
    EXPECT_NEAR(sums[i], golden["heldout"][i].at("logprob_sum").get<double>(), 0.05) << "document " << i;
  }
  if (kWholeDemo) {
    EXPECT_EQ(scored, golden.at("scored_tokens").get<std::size_t>());
    EXPECT_NEAR(perplexity(sums, scored), golden.at("perplexity").get<double>(), 1e-3);
  }
}

TEST(Demo, GreedyContinuations) {
  const auto engine = demo_engine("auto");
  ASSERT_NE(engine, nullptr);
  const nlohmann::json golden = demo_golden();
  std::vector<Request> requests;
  std::vector<std::vector<std::int32_t>> expected;
  ASSERT_GE(golden.at("greedy").size(), 39U);
  for (std::size_t i = 0; i < golden.at("greedy").size(); i += kWholeDemo ? 1 : 3) {
    const auto& one = golden.at("greedy")[i];
    expected.push_back(one.at("greedy_ids").get<std::vector<std::int32_t>>());
    requests.push_back(generate_request(one.at("prompt_ids").get<std::vector<std::int32_t>>(),
                                        static_cast<std::uint32_t>(expected.back().size())));
    requests.back().ignore_eos = true;
  }
  const JobRun run = run_job(*engine, std::move(requests));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(run.results[i].tokens, expected[i]) << i;
  EXPECT_EQ(run.report.bytes_read, run.report.distinct_bytes);
}

// Figures of an independent implementation: the share of a token's picks that the router of a later MoE layer
// names on this layer's residual.
TEST(DemoFigures, RecallOfLaterRoutersOnThisLayersResidual) {
  const auto engine = open_engine(
      container_of(demo_folder() / "checkpoint", "config.json", "auto"),
      {{"memory.experts", "25%"}, {"stages.predict.method", "next_router"}, {"stages.predict.depth", "3"}});
  ASSERT_NE(engine, nullptr);
  std::vector<Request> requests;
  for (const std::string& text : documents()) {
    requests.push_back(score_request(engine->tokenizer()->encode(text, false).value()));
  }
  const JobRun run = run_job(*engine, std::move(requests));
  constexpr double kExpected[] = {0.77, 0.68, 0.59};
  for (const StageReport& stage : run.report.stages) {
    if (stage.kind != "predict") continue;
    for (int depth = 1; depth <= 3; ++depth) {
      const std::string suffix = "_depth" + std::to_string(depth) + "_total";
      const auto named = static_cast<double>(stage.metric("picks_named" + suffix));
      ASSERT_GT(named, 0) << depth;
      EXPECT_NEAR(static_cast<double>(stage.metric("picks_right" + suffix)) / named, kExpected[depth - 1],
                  0.02)
          << "depth " << depth;
    }
  }
}

TEST(Demo, Embeddings) {
  const auto engine = demo_engine("auto");
  ASSERT_NE(engine, nullptr);
  const auto file = SafetensorsFile::open(demo_folder() / "embeddings.safetensors");
  ASSERT_TRUE(file.is_ok());
  std::map<std::string, std::string> prompts;
  std::ifstream lines(demo_folder() / "prompts.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json item = nlohmann::json::parse(line);
    prompts[item.at("id")] = item.at("prompt");
  }
  const nlohmann::json golden = demo_golden();
  for (const auto& id : golden.at("embed")) {
    for (const Pooling pooling : {Pooling::mean, Pooling::last}) {
      Request request = score_request(engine->tokenizer()->encode(prompts.at(id), false).value());
      request.task = Task::embed;
      request.pooling = pooling;
      const JobRun run = run_job(*engine, {request});
      const std::string name = (pooling == Pooling::mean ? "mean." : "last.") + id.get<std::string>();
      const std::vector<float> expected = file->read_f32(name).value();
      ASSERT_EQ(run.results[0].embedding.size(), expected.size());
      float largest = 0;
      for (const float value : expected) largest = std::max(largest, std::fabs(value));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(run.results[0].embedding[i], expected[i], 1e-4F * largest) << name << " " << i;
      }
    }
  }
}

// Weights and activations rounded, by how much the perplexity may grow.
TEST(DemoFigures, PerplexityOfIntegerWeights) {
  const auto reference = demo_engine("auto");
  ASSERT_NE(reference, nullptr);
  const auto [sums, scored] = score_documents(*reference);
  const double bf16 = perplexity(sums, scored);
  for (const auto& [weights, most] : {std::pair{"int8", 1.003}, {"int4", 1.015}}) {
    const auto quantised = demo_engine(weights);
    ASSERT_NE(quantised, nullptr);
    const auto [integer_sums, integer_scored] = score_documents(*quantised);
    EXPECT_EQ(integer_scored, scored);
    const double found = perplexity(integer_sums, integer_scored);
    RecordProperty(std::string("perplexity_") + weights, std::to_string(found));
    std::printf("perplexity: bf16 %.4f, %s %.4f (%+.3f %%)\n", bf16, weights, found,
                100 * (found / bf16 - 1));
    EXPECT_LE(found, bf16 * most) << weights;
  }
}

}  // namespace
}  // namespace colibri::testing
