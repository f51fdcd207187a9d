// A job on a thread of its own: when start returns, how it ends, and what its thread leaves to the host.
#include "runtime/engine/job_thread.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <future>

#include "tests/engine/job_source.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/hooked_stages.hpp"

namespace colibri::testing {
namespace {

constexpr const char* kModel = "olmoe_f32";

class JobOnThread : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.registry = &registry_;
    auto engine = Engine::open(golden_container(kModel, "config.json", "auto"),
                               pipeline_with({{"memory.dynamic", "8MiB"}, {"threads", "2"}}), options);
    ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
    engine_ = std::move(engine).value();
  }

  const Registry registry_ = hooked_registry();
  std::unique_ptr<Engine> engine_;
  const Request request_ = generate_request(golden_cases(kModel).at(0).prompt, 3);
};

TEST_F(JobOnThread, StartReturnsWhenTheStagesHaveStarted) {
  RepeatedSource source(request_, 5);
  CollectingSink sink;
  std::atomic<bool> started = false;
  std::atomic<int> ended = 0;
  Job job = {.source = &source, .sink = &sink};
  job.started = [&]() -> Status {
    started = true;
    return {};
  };
  auto thread = JobThread::start(*engine_, job, [&](const Result<RunReport>& result) {
    EXPECT_TRUE(result.is_ok());
    ++ended;
  });
  ASSERT_TRUE(thread.is_ok()) << thread.status().to_string();
  EXPECT_TRUE(started);
  const auto report = thread.value()->wait();
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(sink.results.size(), 5U);
  EXPECT_EQ(report->generated_tokens, 15U);
  EXPECT_EQ(thread.value()->wait()->generated_tokens, 15U) << "asked again";
  EXPECT_EQ(thread.value()->stats().generated_tokens, 15U);
}

TEST_F(JobOnThread, WhatCannotStartIsSaidByStart) {
  CollectingSink sink;
  bool ended = false;
  auto thread = JobThread::start(*engine_, {.sink = &sink}, [&](const Result<RunReport>&) { ended = true; });
  EXPECT_EQ(thread.status().code(), ErrorCode::invalid_input) << thread.status().to_string();
  EXPECT_FALSE(ended);

  RepeatedSource source(request_, 1);
  Job refused = {.source = &source, .sink = &sink};
  refused.started = [] { return Status(ErrorCode::io, "test: not now"); };
  thread = JobThread::start(*engine_, refused, [&](const Result<RunReport>&) { ended = true; });
  EXPECT_EQ(thread.status().code(), ErrorCode::io) << thread.status().to_string();
  EXPECT_FALSE(ended);
}

TEST_F(JobOnThread, AFailureIsToldAndKeptWithWhatWasDone) {
  RepeatedSource source(request_, 100);
  CollectingSink sink(2);
  std::atomic<int> failed = 0;
  auto thread = JobThread::start(*engine_, {.source = &source, .sink = &sink},
                                 [&](const Result<RunReport>& result) { failed += result.is_ok() ? 0 : 1; });
  ASSERT_TRUE(thread.is_ok()) << thread.status().to_string();
  EXPECT_EQ(thread.value()->wait().status().code(), ErrorCode::io);
  EXPECT_EQ(failed, 1);
  EXPECT_GE(thread.value()->stats().generated_tokens, 6U);
}

// Signals of the process go to the host's threads; also those that the job's thread makes leave them alone.
TEST_F(JobOnThread, ItsThreadTakesNoSignals) {
  RepeatedSource source(request_, 1);
  CollectingSink sink;
  std::promise<sigset_t> mask;
  Job job = {.source = &source, .sink = &sink};
  job.started = [&]() -> Status {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    mask.set_value(blocked);
    return {};
  };
  auto thread = JobThread::start(*engine_, job, {});
  ASSERT_TRUE(thread.is_ok()) << thread.status().to_string();
  const sigset_t blocked = mask.get_future().get();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGCHLD, SIGUSR1, SIGPIPE}) {
    EXPECT_EQ(sigismember(&blocked, signal), 1) << signal;
  }
  EXPECT_EQ(sigismember(&blocked, SIGSEGV), 0);
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  EXPECT_EQ(sigismember(&own, SIGINT), 0) << "the host's own thread still takes them";
}

}  // namespace
}  // namespace colibri::testing
