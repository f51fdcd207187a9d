// The tail of a job, exactly, in virtual time: many short requests and a few long ones. When the long ones
// start last, they end alone, in steps of few rows that read nearly as many experts as full ones.
#include <gtest/gtest.h>

#include <random>

#include "tests/support/costed_job.hpp"
#include "tests/support/small_job.hpp"

namespace colibri::testing {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

const std::filesystem::path kDemo = COLIBRI_TEST_DATA "/../configs/demo/checkpoint";

constexpr std::uint32_t kLines = 256, kShortLines = 232;
constexpr std::uint32_t kLongTokens = 64;
constexpr double kRate = 1e9;  // bytes a second: reading takes four times as long as computing

std::vector<std::int32_t> tokens(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> all(count);
  for (std::int32_t& token : all) token = static_cast<std::int32_t>(random() % 1000);
  return all;
}

const StageReport& admit_of(const RunReport& report) {
  return *std::find_if(report.stages.begin(), report.stages.end(),
                       [](const StageReport& stage) { return stage.name == "admit"; });
}

class Tail : public ::testing::Test {
 protected:
  CostedRun run(const std::string& order, const std::vector<Request>& requests) const {
    return run_costed(container_,
                      {{"memory.experts", "25%"},
                       {"steps.max_rows", "64"},
                       {"steps.wave_rows", "16"},
                       {"stages.admit.order", order}},
                      requests, kRate);
  }

  // At least 15 % shorter, the same answers, and the difference shows in what is told of small steps.
  void expect_shorter(const CostedRun& longest_first, const CostedRun& input) const {
    EXPECT_EQ(result_bits(longest_first.job), result_bits(input.job));
    EXPECT_LE(longest_first.seconds(), 0.85 * input.seconds());
    const RunReport &after = longest_first.job.report, &before = input.job.report;
    // The long ones alone take a step for each of their tokens.
    EXPECT_GE(admit_of(before).metric("small_steps_total"), kLongTokens - 1);
    EXPECT_LE(admit_of(after).metric("small_steps_total"), kLongTokens / 4);
    EXPECT_GT(before.small_step_bytes * 3, before.bytes_read);
    EXPECT_LT(after.small_step_bytes * 10, after.bytes_read);
  }
  const std::filesystem::path container_ = container_of(kDemo, "config.json", "auto");
};

TEST_F(Tail, LongestFirstGoesByWhatRequestsMayGenerate) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < kLines; ++i) {
    requests.push_back(generate_request(tokens(4 + i % 8, i), i < kShortLines ? 4 + i % 8 : kLongTokens));
    requests.back().ignore_eos = true;
  }
  expect_shorter(run("longest_first", requests), run("input", requests));
}

// All may generate as much. Those with short prompts soon stop, which only shows when some have.
TEST_F(Tail, LongestFirstLearnsFromFinishedRequests) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < kLines; ++i) {
    requests.push_back(generate_request(tokens(i < kShortLines ? 12 + i % 4 : 40, i), kLongTokens));
    if (i < kShortLines) requests.back().stop = {"a", "e", "i", "o", "u", "n", "s", "t", " ", ",", ".", "\n"};
  }
  CostedRun input = run("input", requests);
  // A few happen never to stop. Nobody can know which: others take their place.
  const RequestResult* stops = nullptr;
  bool changed = false;
  for (std::uint32_t i = 0; i < kShortLines; ++i) {
    if (input.job.results[i].tokens.size() <= 16) {
      stops = &input.job.results[i];
    } else {
      ASSERT_NE(stops, nullptr);
      requests[i] = requests[stops->index];
      changed = true;
    }
  }
  if (changed) input = run("input", requests);
  expect_shorter(run("longest_first", requests), input);
}

}  // namespace
}  // namespace colibri::testing
