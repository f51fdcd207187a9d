// How a job ends other than by its last request: a sink that breaks, a request to stop, a drive that fails.
// Each time the pipeline ends by itself, and the engine runs the next job as if nothing had been.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "io/read/fault_backend.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "tests/engine/job_source.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/hooked_stages.hpp"

namespace colibri::testing {
namespace {

constexpr const char* kModel = "olmoe_f32";

std::vector<std::int32_t> greedy_tokens(Engine& engine) {
  const GoldenCase one = golden_cases(kModel).at(0);
  const JobRun run =
      run_job(engine, {generate_request(one.prompt, static_cast<std::uint32_t>(one.greedy.size()))});
  return run.results.at(0).tokens;
}

void expect_usable(Engine& engine) { EXPECT_EQ(greedy_tokens(engine), golden_cases(kModel).at(0).greedy); }

class JobEnd : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    // Small steps and a waiting line much shorter than the input: the source is never read to its end.
    engine_ = open_engine(golden_container(kModel, "config.json", "auto"), {{"memory.experts", "50%"},
                                                                            {"steps.max_rows", "16"},
                                                                            {"steps.wave_rows", "4"},
                                                                            {"stages.admit.waiting", "8"}});
    ASSERT_NE(engine_, nullptr);
    prompt_ = golden_cases(kModel).at(0).prompt;
  }
  // On worker threads, or (the parameter) on one thread in a seeded order.
  Result<RunReport> run(Job job) {
    StepScheduler scheduler(7);
    if (GetParam()) job.stepped = &scheduler;
    return engine_->run(job);
  }
  const Registry hooked_ = hooked_registry();
  std::unique_ptr<Engine> engine_;
  std::vector<std::int32_t> prompt_;
};

TEST_P(JobEnd, ABrokenSinkEndsTheJobWithItsError) {
  for (const std::uint64_t broken_after : {0, 1, 20}) {
    RepeatedSource source(generate_request(prompt_, 3), 2000);
    CollectingSink sink(broken_after);
    const auto report = run({.source = &source, .sink = &sink});
    ASSERT_FALSE(report.is_ok());
    EXPECT_EQ(report.status().code(), ErrorCode::io);
    EXPECT_EQ(sink.results.size(), broken_after);
    EXPECT_LT(source.pulled(), 2000U);
    expect_usable(*engine_);
  }
}

TEST_P(JobEnd, StoppingInPrefillFinishesTheStepAndLeavesTheRest) {
  for (const int polls : {0, 1, 5, 30}) {
    // Prompts of several steps each: a stop nearly always falls into a prefill.
    std::vector<std::int32_t> prompt;
    while (prompt.size() < 60) prompt.insert(prompt.end(), prompt_.begin(), prompt_.end());
    RepeatedSource source(generate_request(prompt, 2), 2000);
    CollectingSink sink;
    std::atomic<int> left = polls;
    std::atomic<bool> begun = false;
    const auto report = run({.source = &source,
                             .sink = &sink,
                             .started = [&begun]() -> Status {
                               begun = true;
                               return {};
                             },
                             .stopping = [&] { return begun && left.fetch_sub(1) <= 0; }});
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    EXPECT_LT(source.pulled(), 2000U);
    EXPECT_FALSE(sink.twice);
    for (const auto& [index, result] : sink.results) EXPECT_EQ(result.tokens.size(), 2U) << index;
    expect_usable(*engine_);
  }
}

// Starts may take long (files, memory to register): a stop is seen between them, and nothing is answered.
TEST_P(JobEnd, StoppingWhileStagesStartEndsTheJobBeforeItBegins) {
  EngineOptions options;
  options.registry = &hooked_;
  auto engine = Engine::open(golden_container(kModel, "config.json", "auto"),
                             pipeline_with({{"memory.dynamic", "8MiB"}, {"threads", "2"}}), options);
  ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
  engine_ = std::move(engine).value();
  for (const bool asks_itself : {false, true}) {  // a start that asks and gives up, or one that does not
    std::vector<std::string> started, stopped;
    const ScopedHooks hooks({.after_start = [&](const std::string& name) -> Status {
                               started.push_back(name);
                               if (asks_itself && started.size() == 4)
                                 return {ErrorCode::cancelled, "stopped: test"};
                               return {};
                             },
                             .after_stop = [&](const std::string& name) { stopped.push_back(name); }});
    RepeatedSource source(generate_request(prompt_, 3), 5);
    CollectingSink sink;
    bool begun = false;
    const auto report = run({.source = &source,
                             .sink = &sink,
                             .started = [&]() -> Status {
                               begun = true;
                               return {};
                             },
                             .stopping = [&] { return started.size() >= 4; }});
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    EXPECT_EQ(report->generated_tokens, 0U);
    EXPECT_FALSE(begun);
    EXPECT_EQ(started.size(), 4U);
    EXPECT_EQ(stopped, std::vector<std::string>(started.rbegin(), started.rend()));
    EXPECT_EQ(source.pulled(), 0U);
  }
  expect_usable(*engine_);
}

TEST(JobBegin, StoppingWhileWeightsAreReadEndsTheOpening) {
  int asked = 0;
  EngineOptions options;
  options.stopping = [&asked] { return ++asked == 3; };
  const auto engine =
      Engine::open(golden_container(kModel, "config.json", "auto"), pipeline_with({}), std::move(options));
  ASSERT_FALSE(engine.is_ok());
  EXPECT_EQ(engine.status().code(), ErrorCode::cancelled) << engine.status().to_string();
  EXPECT_EQ(asked, 3);
}

// Tells of each request that has failed.
class FailureSink final : public ResultSink {
 public:
  explicit FailureSink(std::function<void()> failed = [] {}) : failed_(std::move(failed)) {}
  Status result(RequestResult&& result) override {
    if (!result.error.is_ok()) failed_();
    results.push_back(std::move(result));
    return {};
  }
  Status flush() override { return {}; }
  std::vector<RequestResult> results;

 private:
  std::function<void()> failed_;
};

TEST_P(JobEnd, ReadsThatFailFailTheirRequestsByNameAndTheJobGoesOn) {
  // The first two tries of each record of a layer fail; everything after them is well again.
  std::uint64_t failed = 0;
  RepeatedSource source(generate_request(prompt_, 3), 40);
  FailureSink sink;
  Job job{.source = &source, .sink = &sink};
  std::vector<Fault> faults;
  for (std::uint32_t expert = 0; expert < engine_->spec().num_experts; ++expert) {
    faults.push_back(
        {.kind = FaultKind::io_error, .count = 2, .offset = engine_->container().record(1, expert).offset});
  }
  job.read_faults = std::make_shared<FaultPlan>(faults);
  const auto report = run(job);
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  ASSERT_EQ(sink.results.size(), 40U);
  for (const RequestResult& result : sink.results) {
    if (result.error.is_ok()) continue;
    ++failed;
    EXPECT_EQ(result.error.code(), ErrorCode::io);
    EXPECT_NE(result.error.to_string().find("layer 1, expert "), std::string::npos)
        << result.error.to_string();
  }
  EXPECT_GT(failed, 0U);
  EXPECT_LT(failed, 40U);
  expect_usable(*engine_);
}

TEST_P(JobEnd, ADriveThatHangsFailsRequestsAndTheJobEnds) {
  engine_ =
      open_engine(golden_container(kModel, "config.json", "auto"),
                  {{"memory.experts", "min"}, {"steps.max_rows", "16"}, {"stages.fetch.deadline_ms", "50"}});
  ASSERT_NE(engine_, nullptr);
  const auto faults = std::make_shared<FaultPlan>(std::vector<Fault>{{.kind = FaultKind::hang, .first = 3}});
  RepeatedSource source(generate_request(prompt_, 3), 40);
  // The hang has shown itself: the drive goes on, and may take its time, as on a busy machine.
  FailureSink sink([&] {
    EXPECT_TRUE(engine_->set_parameter("stages.fetch.deadline_ms", "600000").is_ok());
    faults->release();
  });
  Job job{.source = &source, .sink = &sink};
  job.read_faults = faults;
  const auto report = run(job);
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  ASSERT_EQ(sink.results.size(), 40U);
  EXPECT_EQ(sink.results.front().error.code(), ErrorCode::timeout) << sink.results.front().error.to_string();
  expect_usable(*engine_);
}

TEST_P(JobEnd, ADriveThatNeverAnswersEndsTheJobAndTheEngineSaysSo) {
  engine_ =
      open_engine(golden_container(kModel, "config.json", "auto"),
                  {{"memory.experts", "min"}, {"steps.max_rows", "16"}, {"stages.fetch.deadline_ms", "50"}});
  ASSERT_NE(engine_, nullptr);
  const auto faults = std::make_shared<FaultPlan>(std::vector<Fault>{{.kind = FaultKind::hang, .first = 3}});
  RepeatedSource source(generate_request(prompt_, 3), 4);
  FailureSink sink;
  Job job{.source = &source, .sink = &sink};
  job.read_faults = faults;
  const auto report = run(job);
  ASSERT_FALSE(report.is_ok());
  EXPECT_EQ(report.status().code(), ErrorCode::timeout);
  EXPECT_EQ(sink.results.size(), 4U);  // answered, with errors
  const auto again = engine_->run({.source = &source, .sink = &sink});
  ASSERT_FALSE(again.is_ok());
  EXPECT_NE(again.status().to_string().find("open the model again"), std::string::npos);
  faults->release();
}

INSTANTIATE_TEST_SUITE_P(Executors, JobEnd, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "stepped" : "threads"; });

}  // namespace
}  // namespace colibri::testing
