// A job whose few long requests come last: started first, they share their steps with the others.
#include <gtest/gtest.h>

#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

constexpr const char* kModel = "qwen3_moe";

// 48 requests of 3 tokens, then 4 of 40.
std::vector<Request> skewed_requests() {
  const std::vector<GoldenCase> golden = golden_cases(kModel);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < 52; ++i) {
    requests.push_back(generate_request(golden[i % golden.size()].prompt, i < 48 ? 3 : 40));
    requests.back().ignore_eos = true;
  }
  return requests;
}

JobRun run_with(const std::string& order) {
  const auto engine = open_engine(golden_container(kModel, "config.json", "auto"),
                                  {{"steps.max_rows", "16"}, {"stages.admit.order", order}});
  return run_job(*engine, skewed_requests());
}

std::uint64_t small_steps(const JobRun& run) {
  for (const StageReport& stage : run.report.stages) {
    if (stage.kind == "admit") return stage.metric("small_steps_total");
  }
  return 0;
}

TEST(StartOrder, LongestFirstTakesFewerStepsForTheSameAnswers) {
  const JobRun input = run_with("input");
  const JobRun longest = run_with("longest_first");
  ASSERT_EQ(input.results.size(), longest.results.size());
  for (std::size_t i = 0; i < input.results.size(); ++i)
    EXPECT_EQ(input.results[i].tokens, longest.results[i].tokens);
  // 40 steps is what one long request takes; in the order of input they begin when all others are done.
  EXPECT_LT(longest.report.steps * 100, input.report.steps * 85)
      << longest.report.steps << " of " << input.report.steps;
  EXPECT_LT(small_steps(longest), small_steps(input));
}

}  // namespace
}  // namespace colibri::testing
