// colibri batch, what it tells about a run: the profile, the routing trace, memory within the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

constexpr double kMiB = 1 << 20;

std::string with_profile(const TemporaryFolder& folder) { return folder.file("profile.json"); }

Json profile_of(const TemporaryFolder& folder) { return Json::parse(read_file(with_profile(folder))); }

void expect_within_plan(const Json& profile) {
  EXPECT_LE(profile["peak_rss_bytes"].get<double>(),
            1.10 * profile["planned_bytes"].get<double>() + 16 * kMiB);
}

TEST(BatchReport, ProfileHasEveryFigure) {
  const TemporaryFolder folder;
  const BatchRun batch(read_file(demo_file("prompts.jsonl")),
                       {"--experts-memory", "25%", "--profile", with_profile(folder)});
  ASSERT_EQ(batch.status(), 0) << batch.err();
  const Json profile = profile_of(folder);
  for (const char* key : {"prompt_tokens", "generated_tokens", "bytes_read", "distinct_bytes",
                          "wasted_hint_bytes", "peak_rss_bytes", "planned_bytes"}) {
    ASSERT_TRUE(profile.contains(key)) << key;
    EXPECT_TRUE(profile[key].is_number_unsigned()) << key;
  }
  for (const char* key : {"wall_seconds", "tokens_per_second", "hit_rate"}) {
    ASSERT_TRUE(profile.contains(key)) << key;
    EXPECT_TRUE(profile[key].is_number()) << key;
  }
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generated = 0;
  for (const auto& [index, result] : batch.results()) {
    prompt_tokens += result["prompt_tokens"].get<std::uint64_t>();
    generated += result["tokens"].size();
  }
  EXPECT_EQ(profile["prompt_tokens"], prompt_tokens);
  EXPECT_EQ(profile["generated_tokens"], generated);
  EXPECT_GT(profile["wall_seconds"].get<double>(), 0);
  EXPECT_NEAR(profile["tokens_per_second"].get<double>() * profile["wall_seconds"].get<double>(),
              static_cast<double>(prompt_tokens + generated), 1);
  EXPECT_GT(profile["bytes_read"].get<std::uint64_t>(), 0U);
  EXPECT_EQ(profile["bytes_read"], profile["distinct_bytes"]);
  EXPECT_GE(profile["hit_rate"].get<double>(), 0);
  EXPECT_LE(profile["hit_rate"].get<double>(), 1);
  expect_within_plan(profile);

  std::set<std::string> kinds;
  for (const Json& stage : profile["stages"]) {
    kinds.insert(stage["kind"].get<std::string>());
    EXPECT_TRUE(stage["name"].is_string());
    // Where slots are handed over, messages go past the stage that could copy them.
    EXPECT_EQ(stage["items"].get<std::uint64_t>() == 0, stage["kind"] == "transfer") << stage["name"];
    for (const char* key : {"busy_seconds", "p50_seconds", "p95_seconds", "p99_seconds"}) {
      ASSERT_TRUE(stage.contains(key)) << key;
      EXPECT_GE(stage[key].get<double>(), 0) << key;
    }
    EXPECT_LE(stage["p50_seconds"].get<double>(), stage["p95_seconds"].get<double>());
    EXPECT_LE(stage["p95_seconds"].get<double>(), stage["p99_seconds"].get<double>());
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"read", "admit", "embed", "attend", "route", "predict", "fetch",
                                          "transfer", "compute", "combine", "sample", "write"}));
}

// A line a token and MoE layer: the demo has 6 layers with 4 of 32 experts.
// Prompts to be scored fit one step when memory allows: more rows than a step has by default, each record
// read once.
TEST(BatchReport, ScoringGoesThroughTheModelOnce) {
  const TemporaryFolder folder;
  const BatchRun batch(read_file(demo_file("prompts.jsonl")),
                       {"--task", "score", "--experts-memory", "25%", "--profile", with_profile(folder)});
  ASSERT_EQ(batch.status(), 0) << batch.err();
  const Json profile = profile_of(folder);
  EXPECT_GT(profile["prompt_tokens"].get<std::uint64_t>(), 1024U);
  for (const Json& stage : profile["stages"]) {
    if (stage["kind"] == "admit") {
      EXPECT_EQ(stage["metrics"]["steps_total"], 1U);
    }
  }
  const auto experts = std::filesystem::file_size(std::filesystem::path(demo_model()) / "experts.bin");
  EXPECT_LE(profile["bytes_read"].get<std::uint64_t>(), experts);
}

TEST(BatchReport, RoutingTraceHasEveryPick) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("routing.jsonl");
  std::vector<Json> requests = demo_requests();
  requests.resize(3);
  const BatchRun batch(jsonl(requests), {"--trace-routing", trace, "--experts-memory", "25%"});
  ASSERT_EQ(batch.status(), 0) << batch.err();
  const std::vector<Json> lines = parse_jsonl(read_file(trace));
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0]["record_bytes"], 3 * 256 * 128 * 2);
  EXPECT_EQ(lines[0]["slots"], 48);  // a quarter of 6 x 32
  // The last token drawn is never fed back.
  std::size_t rows = 0;
  for (const auto& [index, result] : batch.results()) {
    rows += result["prompt_tokens"].get<std::size_t>() + result["tokens"].size() - 1;
  }
  EXPECT_EQ(lines.size() - 1, rows * 6);
  std::set<std::tuple<std::string, int, int>> seen;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const Json& line = lines[i];
    std::vector<std::string> keys;
    for (const auto& [key, value] : line.items()) keys.push_back(key);
    EXPECT_EQ(keys,
              (std::vector<std::string>{"step", "visit", "id", "position", "layer", "experts", "weights"}));
    const auto experts = line["experts"].get<std::vector<int>>();
    ASSERT_EQ(experts.size(), 4U);
    EXPECT_TRUE(std::is_sorted(experts.begin(), experts.end()));
    EXPECT_LT(experts.back(), 32);
    double sum = 0;
    for (const Json& weight : line["weights"]) sum += weight.get<double>();
    EXPECT_NEAR(sum, 1, 1e-5);  // this family's weights are made to add up to one
    EXPECT_TRUE(
        seen.emplace(line["id"].get<std::string>(), line["position"].get<int>(), line["layer"].get<int>())
            .second);
  }
}

TEST(BatchReport, MemoryStaysWithinThePlanFor500Prompts) {
  const TemporaryFolder folder;
  std::vector<Json> requests = demo_requests();
  std::vector<Json> many;
  for (int i = 0; i < 500; ++i) {
    many.push_back(requests[static_cast<std::size_t>(i) % requests.size()]);
    many.back().update({{"id", i}, {"max_tokens", 4}});
  }
  // Little KV, so that the plan has no room to hide in.
  const BatchRun batch(jsonl(many), {"--experts-memory", "25%", "--set", "memory.dynamic=16MiB", "--profile",
                                     with_profile(folder)});
  ASSERT_EQ(batch.status(), 0) << batch.err();
  EXPECT_EQ(batch.results().size(), 500U);
  const Json profile = profile_of(folder);
  EXPECT_LT(profile["planned_bytes"].get<double>(), 100 * kMiB);
  expect_within_plan(profile);
}

// Ten times the lines may not take more memory: results and requests pass through.
TEST(BatchReport, MemoryIsFlatHoweverLongTheJob) {
  double peak[2] = {0, 0};
  for (int run = 0; run < 2; ++run) {
    const TemporaryFolder folder;
    std::vector<Json> lines = {{{"id", "long"}, {"tokens", std::vector<int>(2000, 300)}, {"max_tokens", 1}}};
    const int count = run == 0 ? 500 : 5000;
    for (int i = 0; i < count; ++i)
      lines.push_back({{"id", i}, {"tokens", {16 + i % 1000}}, {"max_tokens", 1}});
    const BatchRun batch(jsonl(lines), {"--profile", with_profile(folder)});
    ASSERT_EQ(batch.status(), 0) << batch.err();
    EXPECT_EQ(batch.results().size(), lines.size());
    peak[run] = profile_of(folder)["peak_rss_bytes"].get<double>();
    expect_within_plan(profile_of(folder));
  }
  EXPECT_LT(peak[1] - peak[0], 8 * kMiB);
}

}  // namespace
}  // namespace colibri::test
