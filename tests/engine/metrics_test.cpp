// Histograms against sorted values, and the report as another JSON parser reads it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/metrics/histogram.hpp"
#include "runtime/metrics/hop_estimate.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

void check_quantiles(const std::vector<std::uint64_t>& values) {
  Histogram histogram;
  for (const std::uint64_t value : values) histogram.add(value);
  std::vector<std::uint64_t> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(histogram.count(), values.size());
  EXPECT_EQ(histogram.max(), sorted.back());
  for (const double share : {0.0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0}) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
    const std::uint64_t exact = sorted[std::max<std::size_t>(rank, 1) - 1];
    const std::uint64_t found = histogram.quantile(share);
    // The upper end of the bucket: never below, and two significant digits above at most.
    EXPECT_GE(found, exact) << share;
    EXPECT_LE(static_cast<double>(found), static_cast<double>(exact) * 1.02 + 0.5) << share;
  }
}

TEST(Histogram, QuantilesAreWithinTwoPercent) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint64_t> uniform, wide;
    std::lognormal_distribution<double> lognormal(8 + round % 5, 0.5 + round % 4);
    const std::size_t count = 1 + random() % 5000;
    for (std::size_t i = 0; i < count; ++i) {
      uniform.push_back(random() % 1'000'000);
      wide.push_back(static_cast<std::uint64_t>(std::min(lognormal(random), 1e18)));
    }
    check_quantiles(uniform);
    check_quantiles(wide);
  }
  check_quantiles({0});
  check_quantiles({0, 0, 0, 1});
  check_quantiles({63, 64, 65, 127, 128, 129});
  check_quantiles({~std::uint64_t{0}, ~std::uint64_t{0} - 1, std::uint64_t{1} << 63});
}

TEST(Histogram, IsEmptyAtFirst) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.quantile(0.5), 0U);
}

// Hops of a lognormal distribution, of which some were cut off by a time slice of another thread.
TEST(HopEstimate, IsThatOfTheHopsWithoutTheTimeSlicesOfOthers) {
  for (const double median_ns : {40.0, 200.0, 3'000.0, 60'000.0}) {
    for (const int preempted_in : {0, 50, 1000}) {
      std::mt19937_64 random(7);
      std::lognormal_distribution<double> hop(std::log(median_ns), 0.6);
      HopEstimate estimate;
      double real = 0, estimated = 0;
      for (int i = 0; i < 20'000; ++i) {
        const int calls = static_cast<int>(random() % 5);  // none: a look for work
        double cost = 0;
        for (int k = 0; k < std::max(calls, 1); ++k) cost += hop(random);
        real += cost;
        if (preempted_in > 0 && random() % preempted_in == 0) cost += 4e6;
        estimated += static_cast<double>(estimate.sample(static_cast<std::uint64_t>(cost), calls));
      }
      EXPECT_GT(estimated, 0.97 * real) << median_ns << " ns, one of " << preempted_in;
      EXPECT_LT(estimated, 1.20 * real) << median_ns << " ns, one of " << preempted_in;
    }
  }
}

// The machine becomes slower or faster: the estimate follows.
TEST(HopEstimate, FollowsWhatHopsCost) {
  HopEstimate estimate;
  for (const std::uint64_t cost : {100U, 5'000U, 150U}) {
    for (int i = 0; i < 200; ++i) estimate.sample(cost, 1);
    EXPECT_EQ(estimate.sample(cost, 1), cost);
    EXPECT_EQ(estimate.sample(3 * cost, 3), 3 * cost);
    EXPECT_LT(estimate.sample(1000 * cost, 1), 10 * cost);
  }
}

TEST(RunReport, JsonHoldsWhatAReaderExpects) {
  const auto engine =
      open_engine(golden_container("qwen3_moe", "config.json", "auto"), {{"memory.experts", "25%"}});
  ASSERT_NE(engine, nullptr);
  const GoldenCase one = golden_cases("qwen3_moe").at(0);
  std::vector<Request> requests(5, generate_request(one.prompt, 6));
  for (Request& request : requests) request.ignore_eos = true;
  const RunReport report = run_job(*engine, requests).report;
  const nlohmann::json json = nlohmann::json::parse(report.to_json());
  for (const char* key : {"wall_seconds", "prompt_tokens", "generated_tokens", "tokens_per_second",
                          "bytes_read", "distinct_bytes", "wasted_hint_bytes", "hit_rate", "peak_rss_bytes",
                          "planned_bytes", "messages", "hop_seconds", "hop_share"}) {
    ASSERT_TRUE(json.contains(key)) << key;
    EXPECT_TRUE(json[key].is_number()) << key;
  }
  EXPECT_EQ(json["prompt_tokens"], 5 * one.prompt.size());
  EXPECT_EQ(json["generated_tokens"], 30);
  EXPECT_GT(json["wall_seconds"], 0.0);
  EXPECT_NEAR(json["tokens_per_second"].get<double>() * json["wall_seconds"].get<double>(),
              static_cast<double>(5 * one.prompt.size() + 30), 0.01);
  EXPECT_EQ(json["bytes_read"], json["distinct_bytes"]);
  EXPECT_EQ(json["bytes_read"].get<std::uint64_t>() % engine->container().layout().record_bytes, 0U);
  EXPECT_GE(json["hit_rate"], 0.0);
  EXPECT_LE(json["hit_rate"], 1.0);
  EXPECT_GT(json["hop_seconds"], 0.0);
  EXPECT_NEAR(json["hop_share"].get<double>() * json["wall_seconds"].get<double>(),
              json["hop_seconds"].get<double>(), 1e-9);
  ASSERT_EQ(json["stages"].size(), 12U);
  std::uint64_t messages = 0;
  for (const auto& stage : json["stages"]) {
    for (const char* key : {"name", "kind"}) EXPECT_TRUE(stage.at(key).is_string());
    for (const char* key : {"busy_seconds", "p50_seconds", "p95_seconds", "p99_seconds"}) {
      EXPECT_TRUE(stage.at(key).is_number()) << key;
    }
    EXPECT_TRUE(stage.at("items").is_number_unsigned());
    // Where slots are handed over, messages go past the stage that could copy them.
    EXPECT_EQ(stage["items"] == 0, stage["kind"] == "transfer") << stage["name"];
    EXPECT_LE(stage["p50_seconds"], stage["p95_seconds"]);
    EXPECT_LE(stage["p95_seconds"], stage["p99_seconds"]);
    EXPECT_LE(stage["busy_seconds"].get<double>(), json["wall_seconds"].get<double>() * 1.1);
    // A source is sent nothing; the others take what they handle.
    EXPECT_EQ(stage["messages"], stage["kind"] == "read" ? 0 : stage["items"].get<std::uint64_t>()) << stage;
    messages += stage["messages"].get<std::uint64_t>();
    const bool one_a_request = stage["kind"] == "read" || stage["kind"] == "write";
    EXPECT_TRUE(!one_a_request || stage["items"] == 5) << stage;
  }
  EXPECT_EQ(json["messages"], messages);
  // The table names every stage.
  for (const StageReport& stage : report.stages)
    EXPECT_NE(report.to_table().find(stage.name), std::string::npos);
}

TEST(RunReport, OfNothingIsValidJson) {
  const nlohmann::json json = nlohmann::json::parse(RunReport().to_json());
  EXPECT_TRUE(json.at("hit_rate").is_number_float());  // of whole values too
  EXPECT_EQ(json.at("hit_rate"), 1.0);
  EXPECT_EQ(json.at("tokens_per_second"), 0.0);
  EXPECT_TRUE(json.at("stages").empty());
}

}  // namespace
}  // namespace colibri::testing
