// Many seeded orders of work on one thread, stages that act as if blocked at random: the answers are those of
// the threads, to the bit, and every job ends.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <random>

#include "runtime/engine/step_scheduler.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

constexpr const char* kModel = "qwen2_moe";  // shared expert, a dense layer between MoE layers

// 200 unless COLIBRI_TEST_SCALE says less; sanitizers run a fraction.
int seeds() {
  const char* scale = std::getenv("COLIBRI_TEST_SCALE");
  const double factor = scale == nullptr ? 1.0 : std::atof(scale);
  return std::max(5, static_cast<int>(200 * std::min(factor, 1.0)));
}

std::vector<Request> requests() {
  std::vector<Request> all;
  const std::vector<GoldenCase> golden = golden_cases(kModel);
  for (std::size_t i = 0; i < 5; ++i) {
    const GoldenCase& one = golden[i % golden.size()];
    if (i == 2) {
      all.push_back(score_request(one.prompt));
    } else if (i == 4) {
      all.push_back(score_request(one.prompt));
      all.back().task = Task::embed;
    } else {
      all.push_back(generate_request(one.prompt, 3));
      all.back().logprobs = 2;
      all.back().logprobs_given = true;
      all.back().ignore_eos = true;
    }
  }
  return all;
}

// Tokens, and the bits of all numbers.
std::vector<std::vector<std::uint32_t>> bits(const JobRun& run) {
  std::vector<std::vector<std::uint32_t>> all;
  for (const RequestResult& result : run.results) {
    EXPECT_TRUE(result.error.is_ok()) << result.error.to_string();
    std::vector<std::uint32_t> one(result.tokens.begin(), result.tokens.end());
    for (const float value : result.prompt_logprobs) one.push_back(std::bit_cast<std::uint32_t>(value));
    for (const float value : result.embedding) one.push_back(std::bit_cast<std::uint32_t>(value));
    for (const TokenLogprob& token : result.logprobs) one.push_back(std::bit_cast<std::uint32_t>(token.logprob));
    all.push_back(std::move(one));
  }
  return all;
}

TEST(Schedule, AnyOrderOfWorkGivesTheSameBits) {
  const auto container = golden_container(kModel, "config.json", "auto");
  const auto reference = open_engine(container, {{"memory.experts", "100%"}});
  ASSERT_NE(reference, nullptr);
  const auto expected = bits(run_job(*reference, requests()));
  const std::vector<std::pair<std::string, std::string>> steps = {{"steps.max_rows", "24"}, {"steps.wave_rows", "5"}};
  std::vector<std::unique_ptr<Engine>> engines;
  for (const char* experts : {"min", "25%", "100%"}) {
    for (const char* in_flight : {"1", "2"}) {
      auto settings = steps;
      settings.insert(settings.end(), {{"memory.experts", experts}, {"steps.in_flight", in_flight}});
      engines.push_back(open_engine(container, settings));
      ASSERT_NE(engines.back(), nullptr);
    }
  }
  for (int seed = 0; seed < seeds(); ++seed) {
    StepScheduler scheduler(static_cast<std::uint64_t>(seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    JobRunOptions options{.stepped = &scheduler};
    // Every second seed: up to half of all calls find the stage blocked.
    const std::uint64_t blocked = seed % 2 == 0 ? 0 : random() % 50;
    if (blocked > 0) options.inject_blocking = [&random, blocked] { return random() % 100 < blocked; };
    Engine& engine = *engines[static_cast<std::size_t>(seed) % engines.size()];
    const JobRun run = run_job(engine, requests(), options);
    ASSERT_EQ(bits(run), expected) << "seed " << seed;
    ASSERT_EQ(run.report.bytes_read, run.report.distinct_bytes) << "seed " << seed;
  }
}

// The same seed, and reads that complete at their own pace: the schedule may differ, the answers may not.
TEST(Schedule, ASchedulerServesOneJobAfterTheOther) {
  const auto engine = open_engine(golden_container(kModel, "config.json", "auto"), {{"memory.experts", "50%"}});
  ASSERT_NE(engine, nullptr);
  StepScheduler scheduler(3);
  const auto first = bits(run_job(*engine, requests(), {.stepped = &scheduler}));
  const auto second = bits(run_job(*engine, requests(), {.stepped = &scheduler}));
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace colibri::testing
