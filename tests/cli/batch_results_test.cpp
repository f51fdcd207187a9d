// colibri batch, what it writes: every field of every kind of line, stops, sampling, order, tasks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

using Keys = std::vector<std::string>;
const Keys kGenerateKeys = {"id",           "index", "text", "tokens", "prompt_tokens", "completion_tokens",
                            "finish_reason"};

Json request(const std::string& id, const std::string& prompt, std::uint32_t max_tokens) {
  return {{"id", id}, {"prompt", prompt}, {"max_tokens", max_tokens}};
}

Json openai_line(const std::string& id, Json body) {
  return {{"custom_id", id}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", std::move(body)}};
}

// All of the demo; under sanitizers some of it.
TEST(BatchResults, TheDemoCompletes) {
  const std::vector<Json> requests = compared_requests();
  const BatchRun batch(jsonl(requests), {"--experts-memory", "25%"});
  ASSERT_EQ(batch.status(), 0) << batch.err();
  const auto results = batch.results();
  ASSERT_EQ(results.size(), requests.size());
  for (const auto& [index, result] : results) {
    const Json& asked = requests.at(index);
    EXPECT_EQ(keys_of(result), kGenerateKeys);
    EXPECT_EQ(result["id"], asked["id"]);
    EXPECT_EQ(result["completion_tokens"], result["tokens"].size());
    EXPECT_GT(result["prompt_tokens"].get<int>(), 0);
    const std::string reason = result["finish_reason"];
    EXPECT_TRUE(reason == "stop" || (reason == "length" && result["tokens"].size() == asked["max_tokens"]))
        << result;
  }
  for (const char* word : {"attend", "fetch", "tokens/s", "hit rate", "distinct"}) {
    EXPECT_TRUE(contains(batch.err(), word)) << word << " not in: " << batch.err();
  }
}

TEST(BatchResults, InOrderSortsAndStandardOutputIsTheSame) {
  const std::vector<Json> requests = compared_requests();
  const std::string input = jsonl(requests);
  const TemporaryFolder folder;
  write_file(folder.file("requests.jsonl"), input);
  const BatchRun batch(input, {"--in-order", "-q"});
  ASSERT_EQ(batch.status(), 0) << batch.err();
  const std::vector<Json> lines = parse_jsonl(batch.text());
  ASSERT_EQ(lines.size(), requests.size());
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["index"], i);

  const RunResult printed = run_colibri({"batch", demo_model(), folder.file("requests.jsonl"), "-q"});
  EXPECT_EQ(printed.status, 0);
  EXPECT_EQ(printed.err, "");
  EXPECT_EQ(by_index(printed.out), batch.results());

  RunOptions piped;
  piped.input = input;
  const RunResult streamed = run_colibri({"batch", demo_model(), "-", "-q"}, piped);
  EXPECT_EQ(streamed.status, 0);
  EXPECT_EQ(by_index(streamed.out), batch.results());
}

TEST(BatchResults, OpenaiLinesGetTheirOwnShape) {
  const std::string prompt = "In the beginning";
  const Json body = {
      {"model", "demo"}, {"prompt", prompt}, {"max_tokens", 12}, {"temperature", 0}, {"logprobs", 2}};
  Json own = request("own", prompt, 12);
  own["logprobs"] = 2;
  const BatchRun batch(jsonl({openai_line("theirs", body), own}));
  ASSERT_EQ(batch.status(), 0) << batch.err();
  const auto results = batch.results();
  const Json& theirs = results.at(0);
  EXPECT_EQ(keys_of(theirs), (Keys{"id", "custom_id", "response", "error"}));
  EXPECT_EQ(theirs["custom_id"], "theirs");
  EXPECT_TRUE(theirs["error"].is_null());
  EXPECT_EQ(theirs["response"]["status_code"], 200);
  const Json& answer = theirs["response"]["body"];
  EXPECT_EQ(keys_of(answer), (Keys{"id", "object", "created", "model", "choices", "usage"}));
  EXPECT_EQ(answer["model"], "demo");
  const Json& choice = answer["choices"][0];
  const Json& mine = results.at(1);
  EXPECT_EQ(choice["text"], mine["text"]);
  EXPECT_EQ(choice["finish_reason"], mine["finish_reason"]);
  EXPECT_EQ(answer["usage"]["completion_tokens"], mine["completion_tokens"]);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], mine["prompt_tokens"]);
  ASSERT_EQ(choice["logprobs"]["token_logprobs"].size(), mine["logprobs"].size());
  for (std::size_t i = 0; i < mine["logprobs"].size(); ++i) {
    EXPECT_EQ(choice["logprobs"]["token_logprobs"][i], mine["logprobs"][i]["logprob"]);
  }
}

TEST(BatchResults, LogprobsNameTheBestTokens) {
  Json line = request("a", "And the LORD said unto", 16);
  line["logprobs"] = 3;
  line["ignore_eos"] = true;
  const BatchRun batch(jsonl({line}));
  ASSERT_EQ(batch.status(), 0) << batch.err();
  const Json result = batch.results().at(0);
  Keys keys = kGenerateKeys;
  keys.push_back("logprobs");
  EXPECT_EQ(keys_of(result), keys);
  ASSERT_EQ(result["logprobs"].size(), 16U);
  for (std::size_t i = 0; i < 16; ++i) {
    const Json& step = result["logprobs"][i];
    EXPECT_EQ(keys_of(step), (Keys{"token", "logprob", "top"}));
    EXPECT_EQ(step["token"], result["tokens"][i]);
    ASSERT_EQ(step["top"].size(), 3U);
    // Greedy: the token drawn is the best one.
    EXPECT_EQ(step["top"][0], (Json{step["token"], step["logprob"]}));
    double mass = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      const double logprob = step["top"][k][1];
      if (k > 0) {
        EXPECT_LE(logprob, step["top"][k - 1][1].get<double>());
      }
      mass += std::exp(logprob);
    }
    EXPECT_LE(mass, 1.0001);
  }
}

// The text of each token comes from an OpenAI line; a stop string of the end of one token and the
// begin of the next is seen only by who looks across the border.
TEST(BatchResults, StopStringsAcrossTokenBorders) {
  const std::string prompt = "In the beginning God created the heaven";
  const Json body = {{"model", "demo"},  {"prompt", prompt}, {"max_tokens", 48},
                     {"temperature", 0}, {"logprobs", 0},    {"ignore_eos", true}};
  const BatchRun whole(jsonl({openai_line("w", body)}));
  ASSERT_EQ(whole.status(), 0) << whole.err();
  const Json choice = whole.results().at(0)["response"]["body"]["choices"][0];
  const std::string text = choice["text"];
  const auto pieces = choice["logprobs"]["tokens"].get<std::vector<std::string>>();
  ASSERT_EQ(pieces.size(), 48U);
  std::vector<Json> lines;
  std::vector<std::string> stops;
  for (std::size_t i = 4; i + 1 < pieces.size(); ++i) {
    stops.push_back(pieces[i].substr(pieces[i].size() - 1) + pieces[i + 1].substr(0, 2));
    Json line = request("s" + std::to_string(i), prompt, 48);
    line["stop"] = {"never in any text", stops.back()};
    line["ignore_eos"] = true;
    lines.push_back(std::move(line));
  }
  const BatchRun batch(jsonl(lines));
  ASSERT_EQ(batch.status(), 0) << batch.err();
  const auto results = batch.results();
  for (std::size_t i = 0; i < stops.size(); ++i) {
    const std::size_t at = text.find(stops[i]);
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(results.at(i)["text"], text.substr(0, at)) << stops[i];
    EXPECT_EQ(results.at(i)["finish_reason"], "stop");
  }
}

TEST(BatchResults, SeededSamplingRepeats) {
  std::vector<Json> lines;
  for (const int seed : {1, 1, 2}) {
    Json line = request("l" + std::to_string(lines.size()), "The king", 32);
    line.update({{"temperature", 1.0}, {"top_p", 0.9}, {"top_k", 200}, {"seed", seed}, {"ignore_eos", true}});
    lines.push_back(line);
  }
  Json unset = request("unset", "The king", 32);
  unset["temperature"] = 1.0;
  lines.push_back(unset);
  const BatchRun first(jsonl(lines));
  const BatchRun second(jsonl(lines), {"--experts-memory", "min", "--threads", "1", "--wave-rows", "5"});
  ASSERT_EQ(first.status(), 0) << first.err();
  EXPECT_EQ(first.results(), second.results());
  const auto results = first.results();
  EXPECT_EQ(results.at(0)["tokens"], results.at(1)["tokens"]);
  EXPECT_NE(results.at(0)["tokens"], results.at(2)["tokens"]);
  const BatchRun reseeded(jsonl(lines), {"--seed", "5"});
  EXPECT_EQ(reseeded.results().at(0), results.at(0));
  EXPECT_NE(reseeded.results().at(3)["tokens"], results.at(3)["tokens"]);
}

// Which token ends a document is what config.json says; it must be the last one when not ignored.
TEST(BatchResults, IgnoreEosGoesOn) {
  const int end_token = Json::parse(read_file(demo_file("checkpoint/config.json")))["eos_token_id"];
  std::vector<Json> lines = compared_requests();
  for (Json& line : lines) line["max_tokens"] = 24;
  const BatchRun stopping(jsonl(lines));
  for (Json& line : lines) line["ignore_eos"] = true;
  const BatchRun going_on(jsonl(lines));
  ASSERT_EQ(stopping.status(), 0) << stopping.err();
  ASSERT_EQ(going_on.status(), 0) << going_on.err();
  const auto stopped = stopping.results();
  const auto longer = going_on.results();
  int ends = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto tokens = stopped.at(i)["tokens"].get<std::vector<int>>();
    const auto all = longer.at(i)["tokens"].get<std::vector<int>>();
    ASSERT_EQ(all.size(), 24U);
    EXPECT_EQ(longer.at(i)["finish_reason"], "length");
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), all.begin()));
    const auto end = std::find(all.begin(), all.end(), end_token);
    EXPECT_EQ(stopped.at(i)["finish_reason"], end == all.end() ? "length" : "stop");
    EXPECT_EQ(tokens.size(), end == all.end() ? 24 : static_cast<std::size_t>(end - all.begin()) + 1);
    ends += end != all.end();
  }
  EXPECT_GT(ends, 0) << "no document ended, so nothing was tested";
}

// The same file for every task. The sums of the demo's own goldens are checked elsewhere; here, that the
// program gives one value a token and one vector a line.
TEST(BatchResults, ScoreAndEmbedTakeTheSameFile) {
  std::vector<Json> lines = demo_requests();
  lines.resize(6);
  lines[0].update({{"stop", "x"}, {"ignore_eos", true}, {"logprobs", 2}, {"top_k", 3}});
  lines[1]["pooling"] = "last";
  lines[2].update({{"pooling", "mean"}, {"normalize", true}});
  const BatchRun score(jsonl(lines), {"--task", "score"});
  ASSERT_EQ(score.status(), 0) << score.err();
  Keys keys = kGenerateKeys;
  keys.push_back("prompt_logprobs");
  for (const auto& [index, result] : score.results()) {
    EXPECT_EQ(keys_of(result), keys);
    EXPECT_TRUE(result["text"].is_null());
    EXPECT_EQ(result["prompt_logprobs"].size() + 1, result["prompt_tokens"].get<std::size_t>());
    for (const Json& value : result["prompt_logprobs"]) EXPECT_LE(value.get<double>(), 0);
  }
  const BatchRun embed(jsonl(lines), {"--task", "embed"});
  ASSERT_EQ(embed.status(), 0) << embed.err();
  keys.back() = "embedding";
  for (const auto& [index, result] : embed.results()) {
    EXPECT_EQ(keys_of(result), keys);
    ASSERT_EQ(result["embedding"].size(), 256U);  // hidden_size of the demo
    double square = 0;
    for (const Json& value : result["embedding"]) square += value.get<double>() * value.get<double>();
    EXPECT_EQ(std::abs(square - 1) < 1e-4, index == 2) << square;
  }
  const BatchRun generate(jsonl(lines));
  EXPECT_EQ(generate.status(), 0) << generate.err();
}

}  // namespace
}  // namespace colibri::test
