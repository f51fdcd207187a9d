// Stages that throw, in every call and in tiles on other threads, and stages that do not start: the job ends
// with an error that names the stage, every stage is stopped in reverse order, and the engine runs the next
// job.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <stdexcept>

#include "runtime/engine/step_scheduler.hpp"
#include "tests/engine/job_source.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/hooked_stages.hpp"

namespace colibri::testing {
namespace {

constexpr const char* kModel = "olmoe_f32";

class StageFailure : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.registry = &registry_;
    pipeline_ = pipeline_with({{"memory.experts", "50%"},
                               {"threads", "2"},
                               {"steps.max_rows", "16"},
                               {"steps.wave_rows", "4"},
                               {"stages.transfer.mode", "copy"}});
    auto engine = Engine::open(golden_container(kModel, "config.json", "auto"), pipeline_, options);
    ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
    engine_ = std::move(engine).value();
    golden_ = golden_cases(kModel).at(0);
  }
  // On worker threads, or (the parameter) on one thread in a seeded order.
  Result<RunReport> run(Job job) {
    StepScheduler scheduler(11);
    if (GetParam()) job.stepped = &scheduler;
    return engine_->run(job);
  }
  Result<RunReport> run_some() {
    RepeatedSource source(generate_request(golden_.prompt, 3), 30);
    CollectingSink sink;
    return run({.source = &source, .sink = &sink});
  }
  void expect_usable() {
    const JobRun run = run_job(
        *engine_, {generate_request(golden_.prompt, static_cast<std::uint32_t>(golden_.greedy.size()))});
    EXPECT_EQ(run.results.at(0).tokens, golden_.greedy);
  }
  // Runs a job in which `stage` throws in its `nth` call of a kind; false when it never got that far.
  bool fails_in(const std::string& stage, Call call, int nth) {
    std::atomic<int> left = nth;
    std::atomic<bool> thrown = false;
    std::mutex mutex;
    std::vector<std::string> stopped;
    const ScopedHooks hooks({.before =
                                 [&](const std::string& name, Call current) {
                                   // After an abort no stage is called, but calls that go on then may end.
                                   if (name != stage || current != call || left.fetch_sub(1) != 1) return;
                                   thrown = true;
                                   throw std::runtime_error("thrown by a test");
                                 },
                             .after_stop =
                                 [&](const std::string& name) {
                                   const std::lock_guard lock(mutex);
                                   stopped.push_back(name);
                                 }});
    const auto report = run_some();
    if (thrown) {
      EXPECT_FALSE(report.is_ok());
      EXPECT_EQ(report.status().code(), ErrorCode::internal);
      EXPECT_TRUE(report.status().to_string().starts_with("stage " + stage + ": exception in "))
          << report.status().to_string();
      EXPECT_NE(report.status().to_string().find("thrown by a test"), std::string::npos);
    } else {
      EXPECT_TRUE(report.is_ok()) << report.status().to_string();
    }
    std::reverse(stopped.begin(), stopped.end());
    std::vector<std::string> in_order;
    for (const StageSpec& one : pipeline_.stages) in_order.push_back(one.name);
    EXPECT_EQ(stopped, in_order);
    return thrown;
  }

  const Registry registry_ = hooked_registry();
  PipelineSpec pipeline_;
  std::unique_ptr<Engine> engine_;
  GoldenCase golden_;
};

TEST_P(StageFailure, AStageThatThrowsEndsTheJobByName) {
  int messages = 0;
  for (const StageSpec& stage : pipeline_.stages) {
    for (const int nth : {1, 2, 20}) {
      messages += fails_in(stage.name, Call::on_message, nth) ? 1 : 0;
      fails_in(stage.name, Call::resume, nth);
    }
    // The write stage gets its end alone, when all is done; sources get none.
    EXPECT_EQ(fails_in(stage.name, Call::end_of_input, 1), stage.kind != "read") << stage.name;
  }
  EXPECT_EQ(messages, 3 * 11);  // all but the source get that many messages
  EXPECT_TRUE(fails_in("read", Call::resume, 20));
  expect_usable();
}

TEST_P(StageFailure, WhatATileThrowsEndsTheJobByTheNameOfItsStage) {
  int failed = 0;
  for (const StageSpec& stage : pipeline_.stages) {
    for (const int nth : {1, 30}) failed += fails_in(stage.name, Call::tile, nth) ? 1 : 0;
  }
  EXPECT_GE(failed, 6);  // what is cut into tiles depends on the sizes of the model
  expect_usable();
}

TEST_P(StageFailure, OtherThingsThatAreThrownHaveNamesToo) {
  for (const bool memory : {true, false}) {
    const ScopedHooks hooks({.before = [memory](const std::string& name, Call call) {
      if (name != "route" || call != Call::on_message) return;
      if (memory) throw std::bad_alloc();
      throw 7;
    }});
    const auto report = run_some();
    ASSERT_FALSE(report.is_ok());
    EXPECT_EQ(report.status().code(), memory ? ErrorCode::out_of_memory : ErrorCode::internal);
    EXPECT_EQ(report.status().to_string(),
              memory ? "stage route: no memory in on_message; lower the memory settings"
                     : "stage route: exception in on_message that is no std::exception");
  }
  expect_usable();
}

TEST_P(StageFailure, AFailedStartStopsTheStagesBeforeInReverseOrder) {
  for (const bool throws : {false, true}) {
    for (const StageSpec& stage : pipeline_.stages) {
      std::vector<std::string> started, stopped;
      const ScopedHooks hooks(
          {.after_start = [&](const std::string& name) -> Status {
             started.push_back(name);
             if (name != stage.name) return {};
             if (throws) throw std::runtime_error("thrown by a test");
             return {ErrorCode::unsupported, "this stage never starts: test; use another"};
           },
           .after_stop = [&](const std::string& name) { stopped.push_back(name); }});
      RepeatedSource source(score_request({1, 2, 3}), 5);
      CollectingSink sink;
      const auto report = run({.source = &source, .sink = &sink});
      ASSERT_FALSE(report.is_ok()) << stage.name;
      EXPECT_EQ(report.status().to_string(), "stage " + stage.name +
                                                 (throws ? ": exception at its start: thrown by a test"
                                                         : ": this stage never starts: test; use another"));
      EXPECT_TRUE(sink.results.empty());
      EXPECT_EQ(started.back(), stage.name);
      std::reverse(stopped.begin(), stopped.end());
      EXPECT_EQ(stopped, started);
    }
  }
  expect_usable();
}

// Job::started comes after all starts and before the first call; a start that fails leaves it out.
TEST_P(StageFailure, TheHostIsToldWhenAllStagesHaveStarted) {
  std::atomic<bool> last_start_fails = false;
  std::size_t starts = 0, starts_seen = 0, calls = 0;
  std::atomic<bool> early = false, told = false;
  const std::string last = pipeline_.stages.back().name;
  const ScopedHooks hooks({.before =
                               [&](const std::string&, Call) {
                                 if (!told) early = true;
                               },
                           .after_start = [&](const std::string& name) -> Status {
                             ++starts;
                             if (!last_start_fails || name != last) return {};
                             return {ErrorCode::io, "this stage never starts: test; use another"};
                           }});
  RepeatedSource source(generate_request(golden_.prompt, 3), 5);
  CollectingSink sink;
  Status answer;
  Job job{.source = &source, .sink = &sink, .started = [&] {
            ++calls;
            starts_seen = starts;
            told = true;
            return answer;
          }};
  ASSERT_TRUE(run(job).is_ok());
  EXPECT_EQ(calls, 1U);
  EXPECT_EQ(starts_seen, pipeline_.stages.size());
  EXPECT_FALSE(early);
  EXPECT_EQ(sink.results.size(), 5U);

  answer = {ErrorCode::io, "the host cannot begin: test; make room"};
  RepeatedSource untouched(generate_request(golden_.prompt, 3), 5);
  job.source = &untouched;
  EXPECT_EQ(run(job).status().to_string(), "the host cannot begin: test; make room");
  EXPECT_EQ(untouched.pulled(), 0U);

  last_start_fails = true;
  EXPECT_FALSE(run(job).is_ok());
  EXPECT_EQ(calls, 2U);
  last_start_fails = false;
  expect_usable();
}

TEST_P(StageFailure, AKindWhoseStageCannotBeMadeIsNamed) {
  {
    const ScopedHooks hooks({.created = [](const std::string& kind) {
      if (kind == "sample") throw std::runtime_error("thrown by a test");
    }});
    const auto report = run_some();
    ASSERT_FALSE(report.is_ok());
    EXPECT_EQ(report.status().to_string(), "stage sample: exception when it was made: thrown by a test");
  }
  expect_usable();
}

// Sources, sinks and the job's own functions belong to the host, and may throw as stages may.
TEST_P(StageFailure, WhatTheHostThrowsEndsTheJob) {
  class ThrowingSink final : public ResultSink {
   public:
    Status result(RequestResult&&) override { throw std::runtime_error("thrown by a test"); }
    Status flush() override { return {}; }
  };
  class ThrowingSource final : public RequestSource {
   public:
    Pull pull(Request&) override { throw std::runtime_error("thrown by a test"); }
    bool finite() const override { return true; }
    void on_ready(std::function<void()>) override {}
  };
  RepeatedSource source(generate_request(golden_.prompt, 3), 300);
  CollectingSink sink;
  ThrowingSink throwing_sink;
  ThrowingSource throwing_source;
  const auto from_sink = run({.source = &source, .sink = &throwing_sink});
  EXPECT_EQ(from_sink.status().to_string(), "stage write: exception in on_message: thrown by a test");
  const auto from_source = run({.source = &throwing_source, .sink = &sink});
  EXPECT_EQ(from_source.status().to_string(), "stage read: exception in resume: thrown by a test");
  const auto from_stopping = run({.source = &source, .sink = &sink, .stopping = []() -> bool {
                                    throw std::runtime_error("thrown by a test");
                                  }});
  EXPECT_NE(from_stopping.status().to_string().find("thrown by a test"), std::string::npos);
  if (!GetParam()) {  // stepped jobs show no progress
    RepeatedSource endless(generate_request(golden_.prompt, 3), ~std::uint64_t{0});
    const auto from_progress = run({.source = &endless, .sink = &sink, .progress = [](const RunReport&) {
                                      throw std::runtime_error("thrown by a test");
                                    }});
    EXPECT_EQ(from_progress.status().to_string(), "exception outside of stages: thrown by a test");
  }
  expect_usable();
}

INSTANTIATE_TEST_SUITE_P(Executors, StageFailure, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "stepped" : "threads"; });

}  // namespace
}  // namespace colibri::testing
