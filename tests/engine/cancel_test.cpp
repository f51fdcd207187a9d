// Jobs that are cancelled, and engines that go while a job runs: promptly, without a leak, from any state.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <thread>

#include "io/read/fault_backend.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "tests/engine/job_source.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/hooked_stages.hpp"
#include "tests/support/test_scale.hpp"

namespace colibri::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kModel = "olmoe_f32";

class Cancel : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    golden_ = golden_cases(kModel).at(0);
    engine_ = open();
    ASSERT_NE(engine_, nullptr);
  }
  std::unique_ptr<Engine> open() {
    EngineOptions options;
    options.registry = &registry_;
    auto engine = Engine::open(golden_container(kModel, "config.json", "auto"),
                               pipeline_with({{"memory.experts", "50%"},
                                              {"memory.dynamic", "8MiB"},
                                              {"threads", "2"},
                                              {"steps.max_rows", "16"},
                                              {"steps.wave_rows", "4"}}),
                               options);
    EXPECT_TRUE(engine.is_ok()) << engine.status().to_string();
    return engine ? std::move(engine).value() : nullptr;
  }
  Result<RunReport> run(Engine& engine, Job job) const {
    StepScheduler scheduler(5);
    if (GetParam()) job.stepped = &scheduler;
    return engine.run(job);
  }
  void expect_usable() {
    const JobRun run = run_job(
        *engine_, {generate_request(golden_.prompt, static_cast<std::uint32_t>(golden_.greedy.size()))});
    EXPECT_EQ(run.results.at(0).tokens, golden_.greedy);
  }

  const Registry registry_ = hooked_registry();
  std::unique_ptr<Engine> engine_;
  GoldenCase golden_;
};

// Cancelled in a call of each stage: in prefill, with experts in flight, while results are written.
TEST_P(Cancel, FromAnyStageTheJobEndsAsCancelled) {
  std::vector<std::int32_t> prompt;  // several steps of prefill
  while (prompt.size() < 60) prompt.insert(prompt.end(), golden_.prompt.begin(), golden_.prompt.end());
  for (const StageSpec& stage : pipeline_with({}).stages) {
    for (const int nth : {1, 15}) {
      std::atomic<int> left = nth, calls_after = 0;
      std::atomic<bool> cancelled = false;
      const ScopedHooks hooks({.before = [&](const std::string& name, Call call) {
        if (call == Call::tile) return;
        if (cancelled) ++calls_after;
        if (name != stage.name || left.fetch_sub(1) != 1) return;
        engine_->cancel();
        cancelled = true;
      }});
      RepeatedSource source(generate_request(prompt, 3), ~std::uint64_t{0});
      CollectingSink sink;
      const auto report = run(*engine_, {.source = &source, .sink = &sink});
      ASSERT_FALSE(report.is_ok()) << stage.name;
      EXPECT_EQ(report.status().code(), ErrorCode::cancelled) << report.status().to_string();
      // On one thread no stage is called after the call that cancelled.
      if (GetParam()) {
        EXPECT_EQ(calls_after, 0) << stage.name;
      }
    }
  }
  expect_usable();
}

TEST_P(Cancel, FromAnotherThreadAtAnyTime) {
  for (int round = 0; round < 30; ++round) {
    RepeatedSource source(generate_request(golden_.prompt, 3), ~std::uint64_t{0});
    CollectingSink sink;
    auto job =
        std::async(std::launch::async, [&] { return run(*engine_, {.source = &source, .sink = &sink}); });
    std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
    // Before the job has begun nothing is cancelled: again, until it has ended.
    while (job.wait_for(1ms) != std::future_status::ready) engine_->cancel();
    EXPECT_EQ(job.get().status().code(), ErrorCode::cancelled);
  }
  expect_usable();
}

TEST_P(Cancel, ReadsInFlightAreWaitedFor) {
  const auto faults = std::make_shared<FaultPlan>(
      std::vector<Fault>{{.kind = FaultKind::slow, .count = ~std::uint64_t{0}, .delay = 50ms}});
  std::atomic<int> messages = 0;
  const ScopedHooks hooks({.before = [&](const std::string& name, Call call) {
    // The first demands are served, their reads are in flight.
    if (name == "fetch" && call == Call::on_message && messages.fetch_add(1) == 1) engine_->cancel();
  }});
  RepeatedSource source(generate_request(golden_.prompt, 3), 100);
  CollectingSink sink;
  const auto report = run(*engine_, {.source = &source, .sink = &sink, .read_faults = faults});
  EXPECT_EQ(report.status().code(), ErrorCode::cancelled) << report.status().to_string();
  EXPECT_TRUE(sink.results.empty());
  expect_usable();
}

TEST_P(Cancel, WithoutAJobNothingHappens) {
  engine_->cancel();
  expect_usable();
  engine_->cancel();
  expect_usable();
}

TEST_P(Cancel, ASecondJobAtTheSameTimeIsRefused) {
  Status second;
  std::atomic<int> left = 1;
  const ScopedHooks hooks({.before = [&](const std::string& name, Call) {
    if (name != "admit" || left.fetch_sub(1) != 1) return;
    RepeatedSource source(score_request({1, 2, 3}), 1);
    CollectingSink sink;
    second = engine_->run({.source = &source, .sink = &sink}).status();
  }});
  RepeatedSource source(generate_request(golden_.prompt, 3), 3);
  CollectingSink sink;
  const auto report = run(*engine_, {.source = &source, .sink = &sink});
  EXPECT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(sink.results.size(), 3U);
  EXPECT_EQ(second.code(), ErrorCode::invalid_input);
}

INSTANTIATE_TEST_SUITE_P(Executors, Cancel, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "stepped" : "threads"; });

// Engines that go at some moment of a job in another thread: 1,000 under the label big, a tenth otherwise,
// fewer at small scales.
TEST(Destruction, WithRequestsInFlight) {
  const bool big = std::getenv("COLIBRI_TEST_BIG") != nullptr;
  const int rounds = scaled(big ? 1000 : 100, 10);
  const auto container = golden_container(kModel, "config.json", "auto");
  const std::vector<std::int32_t> prompt = golden_cases(kModel).at(0).prompt;
  int cancelled = 0;
  for (int round = 0; round < rounds; ++round) {
    auto engine = open_engine(container, {{"memory.experts", round % 2 == 0 ? "min" : "50%"},
                                          {"memory.dynamic", "8MiB"},
                                          {"threads", "2"},
                                          {"steps.max_rows", "16"},
                                          {"steps.wave_rows", "4"}});
    ASSERT_NE(engine, nullptr);
    RepeatedSource source(generate_request(prompt, 8), ~std::uint64_t{0});
    CollectingSink sink;
    std::promise<void> begun;
    std::atomic<int> polls = 1 + round % 40;
    // Polled by read and admit, at once and between steps: the engine goes at another moment each time.
    auto stopping = [&] {
      if (polls.fetch_sub(1) == 1) begun.set_value();
      return false;
    };
    Engine& running = *engine;
    auto job = std::async(std::launch::async, [&] {
      return running.run({.source = &source, .sink = &sink, .stopping = stopping}).status().code();
    });
    begun.get_future().wait();
    engine.reset();
    // The job has ended: it only has to come back.
    cancelled += job.get() == ErrorCode::cancelled ? 1 : 0;
  }
  EXPECT_EQ(cancelled, rounds);
}

}  // namespace
}  // namespace colibri::testing
