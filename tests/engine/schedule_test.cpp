// Many seeded orders of work on one thread, stages that act as if blocked at random: the answers are those of
// the threads, to the bit, and every job ends.
#include <gtest/gtest.h>

#include <random>

#include "runtime/engine/step_scheduler.hpp"
#include "tests/engine/shared_out_pipeline.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/small_job.hpp"
#include "tests/support/watchdog.hpp"

namespace colibri::testing {
namespace {

constexpr const char* kModel = "qwen2_moe";  // shared expert, a dense layer between MoE layers

// 200, fewer at smaller scales.
int seeds() { return scaled(200, 5); }

std::vector<Request> requests() { return small_requests(kModel, 5); }

TEST(Schedule, AnyOrderOfWorkGivesTheSameBits) {
  const auto container = golden_container(kModel, "config.json", "auto");
  const auto reference = open_engine(container, {{"memory.experts", "100%"}});
  ASSERT_NE(reference, nullptr);
  const auto expected = result_bits(run_job(*reference, requests()));
  using Settings = std::vector<std::pair<std::string, std::string>>;
  std::vector<std::unique_ptr<Engine>> engines;
  auto add_engine = [&](const char* experts, Settings settings) {
    settings.emplace_back("memory.experts", experts);
    if (std::none_of(settings.begin(), settings.end(),
                     [](const auto& one) { return one.first == "steps.wave_rows"; }))
      settings.emplace_back("steps.wave_rows", "5");
    settings.emplace_back("steps.max_rows", "24");
    engines.push_back(open_engine(container, settings));
    ASSERT_NE(engines.back(), nullptr);
  };
  for (const char* experts : {"min", "25%", "100%"}) {
    for (const Settings& settings :
         {Settings{{"steps.in_flight", "1"}}, Settings{{"steps.in_flight", "2"}},
          Settings{{"steps.in_flight", "2"}, {"steps.wave_rows", "1"}},
          Settings{{"stages.predict.method", "none"}},
          Settings{
              {"stages.transfer.mode", "copy"}, {"stages.transfer.staging", "1"}, {"steps.in_flight", "2"}},
          Settings{{"stages.admit.waiting", "1"}, {"stages.fetch.lanes", "1"}}}) {
      add_engine(experts, settings);
    }
  }
  for (int seed = 0; seed < seeds(); ++seed) {
    StepScheduler scheduler(static_cast<std::uint64_t>(seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    JobRunOptions options{.stepped = &scheduler};
    // With half of the seeds, up to half of all calls find the stage blocked.
    const std::uint64_t blocked = random() % 2 == 0 ? 0 : random() % 50;
    if (blocked > 0) options.inject_blocking = [&random, blocked] { return random() % 100 < blocked; };
    Engine& engine = *engines[static_cast<std::size_t>(seed) % engines.size()];
    const JobRun run = run_job(engine, requests(), options);
    ASSERT_EQ(result_bits(run), expected) << "seed " << seed;
    ASSERT_EQ(run.report.bytes_read, run.report.distinct_bytes) << "seed " << seed;
  }
}

// Three fetches with a slot each, and two steps of which a wave can share what the other step has read: a
// wave that ran ahead of its step must not keep the slot that the rest of the step waits for.
TEST(Schedule, StepsThatShareRecordsDoNotWaitForEachOther) {
  const SharedOut shape{"three", {{"0/3"}, {"1/3"}, {"2/3"}}, {{"all"}}, {{"all"}}, false};
  const auto container = golden_container(kModel, "config.json", "auto");
  const auto reference = open_engine(container, {{"memory.experts", "100%"}});
  ASSERT_NE(reference, nullptr);
  const auto expected = result_bits(run_job(*reference, requests()));
  const auto engine =
      open_pipeline(container, pipeline_from(shared_out_yaml(shape), {{"memory.dynamic", "16MiB"},
                                                                      {"memory.experts", "min"},
                                                                      {"steps.max_rows", "7"},
                                                                      {"steps.wave_rows", "1"},
                                                                      {"steps.in_flight", "2"}}));
  ASSERT_NE(engine, nullptr);
  for (int seed = 0; seed < seeds(); ++seed) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    StepScheduler scheduler(static_cast<std::uint64_t>(seed));
    const JobRun run = run_job(*engine, requests(), {.stepped = &scheduler});
    ASSERT_EQ(result_bits(run), expected) << "seed " << seed;
    ASSERT_EQ(run.report.bytes_read, run.report.distinct_bytes) << "seed " << seed;
  }
}

// The same seed, and reads that complete at their own pace: the schedule may differ, the answers may not.
// A scheduler that forgets what it was asked to run, as oneTBB may.
TEST(Schedule, LostWakesOnlyCostTime) {
  const auto container = golden_container(kModel, "config.json", "auto");
  const auto engine = open_engine(container, {{"memory.experts", "25%"}});
  ASSERT_NE(engine, nullptr);
  const auto expected = result_bits(run_job(*engine, requests()));
  std::atomic<std::uint32_t> wakes{0}, lost{0};
  JobRunOptions options;
  options.lose_wakes = [&] {
    const bool lose = wakes.fetch_add(1) % 97 == 50;
    lost += lose ? 1 : 0;
    return lose;
  };
  EXPECT_EQ(result_bits(run_job(*engine, requests(), options)), expected);
  EXPECT_GT(lost.load(), 0U);
}

TEST(Schedule, ASchedulerServesOneJobAfterTheOther) {
  const auto engine =
      open_engine(golden_container(kModel, "config.json", "auto"), {{"memory.experts", "50%"}});
  ASSERT_NE(engine, nullptr);
  StepScheduler scheduler(3);
  const auto first = result_bits(run_job(*engine, requests(), {.stepped = &scheduler}));
  const auto second = result_bits(run_job(*engine, requests(), {.stepped = &scheduler}));
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace colibri::testing
