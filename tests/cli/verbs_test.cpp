// The verbs that run a model beside batch: generate, perplexity, trace and plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "io/checkpoint/safetensors.hpp"
#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

const std::string kGolden = COLIBRI_TEST_DATA "/golden/";

TEST(Generate, PrintsWhatBatchAnswers) {
  Json line = {{"id", "a"}, {"prompt", "In the beginning"}, {"max_tokens", 40}, {"ignore_eos", true}};
  Json sampled = line;
  sampled.update({{"id", "b"}, {"temperature", 0.8}, {"top_p", 0.9}, {"top_k", 50}, {"seed", 7}});
  Json stopped = line;
  stopped.update({{"id", "c"}, {"stop", {"the", "."}}});
  const BatchRun batch(jsonl({line, sampled, stopped}));
  ASSERT_EQ(batch.status(), 0) << batch.err();
  const auto results = batch.results();
  const std::vector<std::vector<std::string>> flags = {
      {},
      {"--temperature", "0.8", "--top-p", "0.9", "--top-k", "50", "--seed", "7"},
      {"--stop", "the", "--stop", "."}};
  for (std::size_t i = 0; i < flags.size(); ++i) {
    std::vector<std::string> arguments = {"generate",     demo_model(), "-p",          "In the beginning",
                                          "--max-tokens", "40",         "--ignore-eos"};
    arguments.insert(arguments.end(), flags[i].begin(), flags[i].end());
    const RunResult run = run_colibri(arguments);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, results.at(i)["text"].get<std::string>() + "\n");
  }
}

TEST(Generate, RefusesValuesThatAreNone) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--temperature", "nan"},
                                             {"--top-p", "nan"},
                                             {"--temperature", "0x10"},
                                             {"--seed", "-1"},
                                             {"--seed", "18446744073709551616"},
                                             {"--top-k", "-1"},
                                             {"--stop", ""}}) {
    std::vector<std::string> arguments = {"generate", demo_model(), "-p", "x", "--max-tokens", "1"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const RunResult result = run_colibri(arguments);
    EXPECT_EQ(result.status, 2) << flags[0] << " " << flags[1];
    EXPECT_NE(result.err.find(flags[0]), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(Generate, RefusesWhatCannotBe) {
  EXPECT_EQ(run_colibri({"generate", demo_model()}).status, 2);
  EXPECT_EQ(run_colibri({"generate", demo_model(), "-p", "x", "--max-tokens", "0"}).status, 2);
  const RunResult too_long = run_colibri({"generate", demo_model(), "-p", "x", "--max-tokens", "5000"});
  EXPECT_EQ(too_long.status, 1);
  EXPECT_TRUE(contains(too_long.err, "2048")) << too_long.err;
  const RunResult empty = run_colibri({"generate", demo_model(), "-p", ""});
  EXPECT_EQ(empty.status, 1);
  EXPECT_TRUE(contains(empty.err, "prompt")) << empty.err;
  const RunResult checkpoint = run_colibri({"generate", demo_file("checkpoint"), "-p", "x"});
  EXPECT_EQ(checkpoint.status, 1);
  EXPECT_TRUE(contains(checkpoint.err, "colibri convert")) << checkpoint.err;
}

// The first held-out document fits into one window: its sum is what transformers computed.
TEST(Perplexity, OfADocumentIsThatOfTheReference) {
  const TemporaryFolder folder;
  const std::string text = read_file(demo_file("heldout.txt"));
  const Json golden = Json::parse(read_file(demo_file("golden.json")))["heldout"][0];
  write_file(folder.file("document.txt"), text.substr(0, text.find('\f')));
  const RunResult run =
      run_colibri({"perplexity", demo_model(), folder.file("document.txt"), "--window", "1024"});
  ASSERT_EQ(run.status, 0) << run.err;
  double perplexity = 0;
  double sum = 0;
  int tokens = 0;
  int windows = 0;
  ASSERT_EQ(std::sscanf(run.out.c_str(), "perplexity %lf tokens %d windows %d logprob_sum %lf", &perplexity,
                        &tokens, &windows, &sum),
            4)
      << run.out;
  EXPECT_EQ(windows, 1);
  EXPECT_EQ(tokens + 1, golden["tokens"].get<int>());
  EXPECT_NEAR(sum, golden["logprob_sum"].get<double>(), 0.05);
  EXPECT_NEAR(perplexity, std::exp(-sum / tokens), 1e-3);
}

TEST(Perplexity, OfALongTextCountsEveryWindow) {
  const TemporaryFolder folder;
  const std::string text = folder.file("text.txt");
  write_file(text, read_file(demo_file("heldout.txt")).substr(0, 6000));
  const RunResult run = run_colibri({"perplexity", demo_model(), text, "--window", "300", "-q"});
  ASSERT_EQ(run.status, 0) << run.err;
  double perplexity = 0;
  int tokens = 0;
  int windows = 0;
  ASSERT_EQ(
      std::sscanf(run.out.c_str(), "perplexity %lf tokens %d windows %d", &perplexity, &tokens, &windows), 3);
  const RunResult one = run_colibri({"perplexity", demo_model(), text, "--window", "512", "-q"});
  double longer = 0;
  int longer_tokens = 0;
  int longer_windows = 0;
  ASSERT_EQ(std::sscanf(one.out.c_str(), "perplexity %lf tokens %d windows %d", &longer, &longer_tokens,
                        &longer_windows),
            3);
  EXPECT_EQ(tokens + windows, longer_tokens + longer_windows) << "each window leaves its first token out";
  EXPECT_EQ(windows, (tokens + windows + 299) / 300);
  EXPECT_NEAR(std::log(longer), std::log(perplexity), 0.2) << "the same text, cut elsewhere";
  const RunResult too_wide = run_colibri({"perplexity", demo_model(), text, "--window", "4096"});
  EXPECT_EQ(too_wide.status, 1);
  EXPECT_TRUE(contains(too_wide.err, "2048")) << too_wide.err;
}

// Every tensor of the golden file, by its name, within its tolerance.
TEST(Trace, HasTheTensorsOfTheGoldens) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_colibri({"convert", kGolden + "qwen3_moe", folder.file("model"), "--weights", "f32"}).status,
            0);
  const Json golden = Json::parse(read_file(kGolden + "qwen3_moe/golden.json"));
  for (const Json& one : golden["cases"]) {
    if (one["prompt_ids"].size() == 17) write_file(folder.file("ids.json"), one["prompt_ids"].dump());
  }
  const RunResult run = run_colibri({"trace", folder.file("model"), "--tokens", folder.file("ids.json"), "-o",
                                     folder.file("trace.safetensors")});
  ASSERT_EQ(run.status, 0) << run.err;
  const auto expected = SafetensorsFile::open(kGolden + "qwen3_moe/golden.safetensors");
  const auto found = SafetensorsFile::open(folder.file("trace.safetensors"));
  ASSERT_TRUE(expected.is_ok());
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  for (const std::string name :
       {"logits", "hidden_states", "router_logits.0", "router_logits.1", "router_logits.2", "moe_input.0",
        "moe_input.1", "moe_input.2", "moe_output.0", "moe_output.1", "moe_output.2"}) {
    const auto want = expected->read_f32(name);
    const auto got = found->read_f32(name);
    ASSERT_TRUE(want.is_ok() && got.is_ok()) << name;
    ASSERT_EQ(want->size(), got->size()) << name;
    float largest = 0;
    float difference = 0;
    for (std::size_t i = 0; i < want->size(); ++i) {
      largest = std::max(largest, std::fabs((*want)[i]));
      difference = std::max(difference, std::fabs((*want)[i] - (*got)[i]));
    }
    EXPECT_LE(difference, 1e-4F * largest) << name;
  }
}

TEST(Trace, RefusesTokensThatAreNone) {
  const TemporaryFolder folder;
  const std::string ids = folder.file("ids");
  for (const auto& [text, word] :
       {std::pair{"[16, x]", "token id"}, std::pair{"5000", "4095"}, std::pair{"", "token"}}) {
    write_file(ids, text);
    const RunResult run = run_colibri({"trace", demo_model(), "--tokens", ids, "-o", folder.file("t")});
    EXPECT_EQ(run.status, 1) << text;
    EXPECT_TRUE(contains(run.err, word)) << run.err;
  }
}

// 6 layers of 32 experts of 192 KiB: a quarter of them is 48 slots.
TEST(Plan, GivesEverySize) {
  const RunResult run =
      run_colibri({"plan", demo_model(), "--json", "--experts-memory", "25%", "--max-rows", "128"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json plan = Json::parse(run.out);
  EXPECT_EQ(plan["max_rows"], 128);
  EXPECT_EQ(plan["expert_slots"], 48);
  EXPECT_EQ(plan["slot_bytes"], 192 * 1024);
  EXPECT_EQ(plan["experts_bytes"], 48 * 192 * 1024);
  std::uint64_t sum = 0;
  for (const char* key :
       {"static_bytes", "dynamic_bytes", "scratch_bytes", "experts_bytes", "process_bytes"}) {
    ASSERT_TRUE(plan.contains(key)) << key;
    sum += plan[key].get<std::uint64_t>();
  }
  EXPECT_GE(plan["planned_bytes"].get<std::uint64_t>(), sum);
  EXPECT_LT(plan["planned_bytes"].get<std::uint64_t>(), sum + (2U << 20))
      << "regions are rounded up to 2 MiB";

  const RunResult table = run_colibri({"plan", demo_model()});
  EXPECT_EQ(table.status, 0);
  for (const char* word : {"static", "dynamic", "scratch", "experts", "total", "usable"}) {
    EXPECT_TRUE(contains(table.out, word)) << word;
  }
  const RunResult checkpoint = run_colibri({"plan", demo_file("checkpoint")});
  EXPECT_EQ(checkpoint.status, 1);
  EXPECT_TRUE(contains(checkpoint.err, "colibri convert")) << checkpoint.err;
}

}  // namespace
}  // namespace colibri::test
