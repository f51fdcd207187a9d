// Sessions: requests of a host one at a time, answered as a batch job would, to the bit; and how they end.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <colibri/tokenizer.hpp>
#include <filesystem>
#include <future>
#include <stdexcept>
#include <thread>

#include "tests/engine/job_source.hpp"
#include "tests/support/hooked_stages.hpp"
#include "tests/support/session_job.hpp"
#include "tests/support/small_job.hpp"
#include "tests/support/watchdog.hpp"

namespace colibri::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kModel = "olmoe_f32";
constexpr auto kLong = 100s;  // a wait that ends sooner unless something hangs

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override { open({}); }
  void open(const std::vector<std::pair<std::string, std::string>>& more) {
    std::vector<std::pair<std::string, std::string>> settings = {{"memory.experts", "50%"},
                                                                 {"memory.dynamic", "8MiB"},
                                                                 {"threads", "4"},
                                                                 {"steps.max_rows", "16"},
                                                                 {"steps.wave_rows", "4"}};
    settings.insert(settings.end(), more.begin(), more.end());
    EngineOptions options;
    options.registry = &registry_;
    auto engine =
        Engine::open(golden_container(kModel, "config.json", "auto"), pipeline_with(settings), options);
    ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
    engine_ = std::move(engine).value();
  }
  // Generates `tokens` whatever the model says.
  Request request(std::uint32_t tokens) const {
    Request request = generate_request(golden_.prompt, tokens);
    request.ignore_eos = true;
    return request;
  }
  Request long_prompt(std::size_t tokens) const {
    Request long_one = request(4);
    while (long_one.tokens.size() < tokens) {
      long_one.tokens.insert(long_one.tokens.end(), golden_.prompt.begin(), golden_.prompt.end());
    }
    long_one.tokens.resize(tokens);
    return long_one;
  }
  // One that takes the pages of the whole pool, or so many that no other like it has room beside it.
  Request largest() const {
    const std::uint64_t pages = engine_->plan().kv_pages;
    const std::uint64_t positions = std::min<std::uint64_t>(pages * 16, engine_->spec().max_seq_len);
    EXPECT_LT(pages, 2 * positions / 16);
    return request(static_cast<std::uint32_t>(positions - golden_.prompt.size()));
  }
  void expect_usable() {
    const JobRun run = run_job(
        *engine_, {generate_request(golden_.prompt, static_cast<std::uint32_t>(golden_.greedy.size()))});
    EXPECT_EQ(run.results.at(0).tokens, golden_.greedy);
  }

  const Watchdog watchdog_{"session test"};
  const Registry registry_ = hooked_registry();
  const GoldenCase golden_ = golden_cases(kModel).at(0);
  std::unique_ptr<Engine> engine_;
};

TEST_F(SessionTest, AnswersAsABatchJobToTheBit) {
  const std::vector<Request> requests = small_requests(kModel, 30);
  const auto expected = result_bits(run_job(*engine_, requests));
  const auto session = start_session(*engine_);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(result_bits(answers(submit_all(*session, requests))), expected) << "all at once";
  JobRun alone;
  for (const Request& request : requests) alone.results.push_back(submit(*session, request).wait());
  EXPECT_EQ(result_bits(alone), expected) << "one by one";
  EXPECT_EQ(alone.results[3].index, 33U) << "numbers of requests go on";
  const auto report = session->close();
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->generated_tokens, session->stats().generated_tokens);
  EXPECT_EQ(report->reads_per_visit(), 1.0);
}

TEST_F(SessionTest, FromManyThreads) {
  const std::vector<Request> requests = small_requests(kModel, 10);
  const auto expected = result_bits(run_job(*engine_, requests));
  const auto session = start_session(*engine_);
  std::vector<std::thread> hosts;
  for (int host = 0; host < 6; ++host) {
    hosts.emplace_back([&] {
      for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(result_bits(answers(submit_all(*session, requests))), expected);
      }
    });
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_TRUE(session->close().is_ok());
}

TEST_F(SessionTest, WhatIsWrongWithARequestIsItsAnswer) {
  const auto session = start_session(*engine_);
  Request wrong = request(3);
  wrong.id = "mine";
  wrong.tokens[0] = -1;
  const RequestResult answer = submit(*session, wrong).wait();
  EXPECT_EQ(answer.error.code(), ErrorCode::invalid_input);
  EXPECT_EQ(answer.id, "mine");
  EXPECT_TRUE(submit(*session, request(3)).wait().error.is_ok());
}

TEST_F(SessionTest, PollAndWait) {
  Gate gate;
  const ScopedHooks hooks({.before = [&](const std::string& stage, Call call) {
    if (stage == "combine" && call == Call::on_message) gate.pass();
  }});
  const auto session = start_session(*engine_);
  const OpenAtEnd opened(gate);
  const SubmittedRequest open = submit(*session, request(3));
  const SubmittedRequest copy = open;
  gate.wait_for_one();
  EXPECT_FALSE(open.done());
  EXPECT_FALSE(open.wait_for(1ms));
  EXPECT_FALSE(copy.wait_for(-1s));
  gate.open();
  EXPECT_TRUE(copy.wait_for(std::chrono::nanoseconds::max())) << "far beyond what a clock can say";
  EXPECT_TRUE(open.done());
  EXPECT_EQ(&open.wait(), &copy.wait());
  EXPECT_EQ(open.wait().tokens.size(), 3U);
}

TEST_F(SessionTest, TheCallbackComesOnceAndBeforeWaitReturns) {
  const auto session = start_session(*engine_);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> calls = 0;
    const auto held = std::make_shared<int>(0);
    const SubmittedRequest open =
        submit(*session, request(2), {.done = [&calls, held](const RequestResult& result) {
          EXPECT_EQ(result.tokens.size(), 2U);
          ++calls;
        }});
    open.wait();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(held.use_count(), 1) << "what the callback held is let go";
  }
}

TEST_F(SessionTest, NoMoreMayBeOpenThanWasSaid) {
  Gate gate;
  const ScopedHooks hooks({.before = [&](const std::string& stage, Call call) {
    if (stage == "combine" && call == Call::on_message) gate.pass();
  }});
  EXPECT_EQ(Session::start(*engine_, {.max_open_requests = 0}).status().code(), ErrorCode::invalid_input);
  const auto session = start_session(*engine_, {.max_open_requests = 2});
  const OpenAtEnd opened(gate);
  const SubmittedRequest first = submit(*session, request(3)), second = submit(*session, request(3));
  const Status refused = session->submit(request(3)).status();
  EXPECT_EQ(refused.code(), ErrorCode::capacity);
  EXPECT_NE(refused.to_string().find("max_open_requests"), std::string::npos) << refused.to_string();
  gate.open();
  first.wait();
  EXPECT_EQ(submit(*session, request(3)).wait().tokens, first.wait().tokens);
}

// With room for one, each answer makes room for the request that its callback submits.
TEST_F(SessionTest, ACallbackMaySubmitTheNextOne) {
  const auto session = start_session(*engine_, {.max_open_requests = 1});
  std::promise<void> ended;
  std::atomic<int> left = 10;
  std::function<void(const RequestResult&)> next = [&](const RequestResult& result) {
    EXPECT_TRUE(result.error.is_ok()) << result.error.to_string();
    if (--left == 0) return ended.set_value();
    EXPECT_TRUE(session->submit(request(2), {.done = next}).is_ok());
  };
  submit(*session, request(2), {.done = next});
  ended.get_future().wait();
  EXPECT_TRUE(session->close().is_ok());
}

TEST_F(SessionTest, CloseAnswersAllAndThenNothingIsTaken) {
  const std::vector<Request> requests = small_requests(kModel, 40);
  const auto expected = result_bits(run_job(*engine_, requests));
  const auto session = start_session(*engine_);
  const auto submitted = submit_all(*session, requests);
  std::thread other([&] { EXPECT_TRUE(session->close().is_ok()); });
  const auto report = session->close();
  other.join();
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  for (const SubmittedRequest& one : submitted) EXPECT_TRUE(one.done());
  EXPECT_EQ(result_bits(answers(submitted)), expected);
  EXPECT_EQ(session->submit(request(1)).status().code(), ErrorCode::cancelled);
  EXPECT_EQ(session->close()->generated_tokens, report->generated_tokens) << "asked again";
}

TEST_F(SessionTest, DestructionAnswersWhatIsOpen) {
  for (int round = 0; round < 20; ++round) {
    auto session = start_session(*engine_);
    std::vector<SubmittedRequest> submitted;
    std::atomic<int> answered = 0;
    for (int i = 0; i < 50; ++i) {
      submitted.push_back(
          submit(*session, request(100), {.done = [&](const RequestResult&) { ++answered; }}));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(round * 200));
    session.reset();
    EXPECT_EQ(answered, 50);
    for (SubmittedRequest& one : submitted) {
      EXPECT_TRUE(one.done());
      EXPECT_EQ(one.wait().error.code(), ErrorCode::cancelled);
      EXPECT_EQ(one.wait().finish_reason, FinishReason::error);
      one.cancel();  // without effect
    }
  }
  expect_usable();
}

TEST_F(SessionTest, OneCancelledAmongManyLeavesTheOthersBits) {
  const std::vector<Request> requests = small_requests(kModel, 40);
  const auto expected = result_bits(run_job(*engine_, requests));
  const std::vector<std::int32_t> all_tokens = run_job(*engine_, {request(100)}).results.at(0).tokens;
  const auto session = start_session(*engine_);
  for (int round = 0; round < 10; ++round) {
    std::vector<SubmittedRequest> submitted = submit_all(*session, {requests.begin(), requests.begin() + 7});
    SubmittedRequest gone = submit(*session, request(100));
    for (auto at = requests.begin() + 7; at != requests.end(); ++at)
      submitted.push_back(submit(*session, *at));
    std::this_thread::sleep_for(std::chrono::microseconds(round * 100));
    gone.cancel();
    gone.cancel();
    const RequestResult& answer = gone.wait();
    EXPECT_EQ(answer.error.code(), ErrorCode::cancelled) << answer.error.to_string();
    EXPECT_LT(answer.tokens.size(), all_tokens.size());
    EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), all_tokens.begin()));
    EXPECT_EQ(result_bits(answers(submitted)), expected);
  }
  EXPECT_TRUE(session->close().is_ok());
}

TEST_F(SessionTest, ACancelledPromptIsComputedNoFurther) {
  for (const Task task : {Task::generate, Task::score, Task::embed}) {
    Gate gate;
    std::atomic<int> calls = 0;
    const ScopedHooks hooks({.before = [&](const std::string& stage, Call call) {
      // In the second step, of four waves each.
      if (stage == "sample" && call == Call::on_message && ++calls == 5) gate.pass();
    }});
    const auto session = start_session(*engine_);
    const OpenAtEnd opened(gate);
    Request longer = long_prompt(100);
    longer.task = task;
    SubmittedRequest open = submit(*session, longer);
    gate.wait_for_one();
    open.cancel();
    gate.open();
    EXPECT_EQ(open.wait().error.code(), ErrorCode::cancelled);
    EXPECT_TRUE(open.wait().tokens.empty());
    EXPECT_EQ(open.wait().prompt_tokens, 100U);
    EXPECT_LT(open.wait().prompt_logprobs.size(), 99U);
    EXPECT_TRUE(open.wait().embedding.empty());
    const auto report = session->close();
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    EXPECT_EQ(report->prompt_tokens, 32U) << "two steps of 16 rows";
  }
  expect_usable();
}

// The KV pool has room for one of these requests: the other runs when the first one has gone.
TEST_F(SessionTest, PagesOfACancelledRequestServeTheNext) {
  engine_.reset();
  open({{"memory.dynamic", "80KiB"}});
  const Request whole = largest();
  const std::vector<std::int32_t> expected = run_job(*engine_, {whole}).results.at(0).tokens;
  const auto session = start_session(*engine_);
  SubmittedRequest first = submit(*session, whole);
  const SubmittedRequest second = submit(*session, whole);
  EXPECT_FALSE(second.wait_for(1ms));
  first.cancel();
  ASSERT_TRUE(second.wait_for(kLong)) << engine_->describe();
  EXPECT_EQ(second.wait().tokens, expected) << second.wait().error.to_string();
  EXPECT_TRUE(first.done());
}

// Nothing moves: a step is held, another request waits for KV room, others have not been read at all.
TEST_F(SessionTest, ACancelIsSeenWhileNothingElseHappens) {
  engine_.reset();
  open({{"memory.dynamic", "80KiB"}, {"stages.admit.waiting", "1"}});
  Gate gate;
  const ScopedHooks hooks({.before = [&](const std::string& stage, Call call) {
    if (stage == "combine" && call == Call::on_message) gate.pass();
  }});
  const Request whole = largest();
  const auto session = start_session(*engine_);
  const OpenAtEnd opened(gate);
  SubmittedRequest first = submit(*session, whole);
  gate.wait_for_one();
  std::vector<SubmittedRequest> waiting;
  for (int i = 0; i < 200; ++i) waiting.push_back(submit(*session, whole));
  std::this_thread::sleep_for(20ms);  // so that they come as far as they can
  for (const std::size_t which : {0, 1, 7, 150, 199}) {
    waiting[which].cancel();
    ASSERT_TRUE(waiting[which].wait_for(kLong)) << which << "\n" << engine_->describe();
    EXPECT_EQ(waiting[which].wait().error.code(), ErrorCode::cancelled);
  }
  EXPECT_FALSE(waiting[2].done());
  EXPECT_FALSE(first.done());
  session->cancel();
  for (const SubmittedRequest& one : waiting) ASSERT_TRUE(one.wait_for(kLong)) << engine_->describe();
  EXPECT_FALSE(first.done()) << "it is in a step";
  gate.open();
  EXPECT_EQ(first.wait().error.code(), ErrorCode::cancelled);
  EXPECT_EQ(submit(*session, request(2)).wait().tokens.size(), 2U) << "the session is still open";
}

TEST_F(SessionTest, AFailureOfTheJobReachesAllThatIsOpen) {
  std::atomic<int> left = 40;
  const ScopedHooks hooks({.before = [&](const std::string& stage, Call call) {
    if (stage == "route" && call == Call::on_message && left.fetch_sub(1) == 1) {
      throw std::runtime_error("test: broken");
    }
  }});
  const auto session = start_session(*engine_);
  std::atomic<int> told = 0;
  std::vector<SubmittedRequest> submitted;
  for (int i = 0; i < 300; ++i) {
    auto one = session->submit(request(50), {.done = [&](const RequestResult&) { ++told; }});
    if (one) submitted.push_back(std::move(one).value());
  }
  for (const SubmittedRequest& one : submitted) {
    const RequestResult& answer = one.wait();
    EXPECT_EQ(answer.error.code(), ErrorCode::internal);
    EXPECT_EQ(answer.error.stage(), "route");
    EXPECT_EQ(answer.prompt_tokens, golden_.prompt.size());
  }
  EXPECT_EQ(told, static_cast<int>(submitted.size()));
  const Status closed = session->close().status();
  EXPECT_NE(closed.to_string().find("test: broken"), std::string::npos) << closed.to_string();
  EXPECT_EQ(session->submit(request(1)).status().to_string(), closed.to_string());
  expect_usable();
}

TEST_F(SessionTest, ACallbackThatThrowsFailsTheJob) {
  const auto session = start_session(*engine_);
  const SubmittedRequest thrown = submit(
      *session, request(2), {.done = [](const RequestResult&) { throw std::runtime_error("test: host"); }});
  EXPECT_TRUE(thrown.wait().error.is_ok()) << "the answer itself is there";
  const Status closed = session->close().status();
  EXPECT_EQ(closed.code(), ErrorCode::internal);
  EXPECT_NE(closed.to_string().find("test: host"), std::string::npos) << closed.to_string();
  expect_usable();
}

TEST_F(SessionTest, CancelOfTheEngineEndsTheSession) {
  const auto session = start_session(*engine_);
  const SubmittedRequest open = submit(*session, request(200));
  engine_->cancel();
  EXPECT_EQ(open.wait().error.code(), ErrorCode::cancelled);
  EXPECT_EQ(session->close().status().code(), ErrorCode::cancelled);
  EXPECT_EQ(session->submit(request(1)).status().code(), ErrorCode::cancelled);
}

TEST_F(SessionTest, OneSessionAtATime) {
  for (int round = 0; round < 3; ++round) {
    const auto session = start_session(*engine_);
    ASSERT_NE(session, nullptr);
    EXPECT_EQ(Session::start(*engine_).status().code(), ErrorCode::invalid_input);
    RepeatedSource source(request(1), 1);
    CollectingSink sink;
    EXPECT_EQ(engine_->run({.source = &source, .sink = &sink}).status().code(), ErrorCode::invalid_input);
    EXPECT_EQ(submit(*session, request(3)).wait().tokens.size(), 3U);
    if (round == 1) {
      EXPECT_TRUE(session->close().is_ok());
      EXPECT_TRUE(start_session(*engine_)->close().is_ok()) << "after close, before the first one goes";
    }
  }
  expect_usable();
}

TEST_F(SessionTest, AStageThatCannotStartIsSaidByStart) {
  {
    const ScopedHooks hooks({.after_start = [](const std::string& stage) {
      return stage == "sample" ? Status(ErrorCode::io, "test: no device") : Status();
    }});
    const Status refused = Session::start(*engine_).status();
    EXPECT_EQ(refused.code(), ErrorCode::io);
    EXPECT_EQ(refused.stage(), "sample");
  }
  EXPECT_TRUE(submit(*start_session(*engine_), request(1)).wait().error.is_ok());
}

class SessionText : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path demo = golden_folder("..").parent_path() / ".." / ".." / "configs" / "demo";
    EngineOptions options;
    options.registry = &registry_;
    auto engine = Engine::open(
        container_of(demo / "checkpoint", "config.json", "auto"),
        pipeline_with({{"memory.experts", "25%"}, {"memory.dynamic", "64MiB"}, {"threads", "4"}}), options);
    ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
    engine_ = std::move(engine).value();
    request_ = generate_request(engine_->tokenizer()->encode("In the beginning", true).value(), 40);
  }
  // The text as it comes in pieces, none of which may come after the answer.
  RequestCallbacks callbacks() {
    text_ = {};
    answers_ = 0;
    begun_ = {};
    return {.piece =
                [this, pieces = 0](std::string_view piece) mutable {
                  EXPECT_EQ(answers_, 0);
                  text_ += piece;
                  if (++pieces == 2) begun_.set_value();
                },
            .done = [this](const RequestResult&) { ++answers_; }};
  }
  std::uint64_t cancelled() const {
    for (const StageReport& stage : engine_->stats().stages) {
      if (stage.kind == "admit") return stage.metric("cancelled_total");
    }
    return 0;
  }

  const Watchdog watchdog_{"text of a session"};
  const Registry registry_ = hooked_registry();
  std::unique_ptr<Engine> engine_;
  Request request_;
  std::string text_;
  std::atomic<int> answers_ = 0;
  std::promise<void> begun_;
};

TEST_F(SessionText, PiecesMakeUpTheText) {
  const auto session = start_session(*engine_);
  for (const bool cancelled : {false, true}) {
    SubmittedRequest open = submit(*session, request_, callbacks());
    begun_.get_future().wait();
    if (cancelled) open.cancel();
    const RequestResult& answer = open.wait();
    EXPECT_EQ(answer.error.code(), cancelled ? ErrorCode::cancelled : ErrorCode::ok);
    EXPECT_EQ(text_, answer.text);
    EXPECT_FALSE(text_.empty());
    EXPECT_EQ(answers_, 1);
  }
}

// Pieces come from sample, the answer to a cancelled request from admit: it may come before the last of them.
TEST_F(SessionText, AnAnswerThatComesBeforeItsLastPieces) {
  Gate gate;
  std::atomic<int> calls = 0;
  const ScopedHooks hooks({.before = [&](const std::string& stage, Call call) {
    if (stage == "write" && call == Call::on_message && ++calls == 2) gate.pass();
  }});
  const auto session = start_session(*engine_);
  const OpenAtEnd opened(gate);
  SubmittedRequest open = submit(*session, request_, callbacks());
  gate.wait_for_one();
  while (engine_->stats().generated_tokens < 6) std::this_thread::yield();  // more pieces are on their way
  open.cancel();
  while (cancelled() == 0 && !open.done()) std::this_thread::yield();
  gate.open();
  EXPECT_EQ(open.wait().error.code(), ErrorCode::cancelled);
  EXPECT_GT(open.wait().tokens.size(), 1U);
  EXPECT_EQ(text_, open.wait().text);
  EXPECT_EQ(answers_, 1);
}

// In a child that fork made everything is answered at once, and nothing is waited for or freed.
TEST_F(SessionTest, AfterForkTheChildIsTold) {
  Gate gate;
  const ScopedHooks hooks({.before = [&](const std::string& stage, Call call) {
    if (stage == "combine" && call == Call::on_message) gate.pass();
  }});
  auto session = start_session(*engine_);
  const OpenAtEnd opened(gate);
  auto open = std::make_unique<SubmittedRequest>(submit(*session, request(3)));
  std::thread waiter([&] { EXPECT_EQ(open->wait().tokens.size(), 3U); });
  gate.wait_for_one();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);
    int wrong = 0;
    wrong += open->wait().error.code() == ErrorCode::forked ? 0 : 1;
    wrong += open->done() && open->wait_for(1s) ? 0 : 2;
    open->cancel();
    wrong += session->submit(request(1)).status().code() == ErrorCode::forked ? 0 : 4;
    wrong += session->close().status().code() == ErrorCode::forked ? 0 : 8;
    session->cancel();
    wrong += session->stats().stages.empty() ? 0 : 16;
    open.reset();
    session.reset();
    wrong += Session::start(*engine_).status().code() == ErrorCode::forked ? 0 : 32;
    engine_.reset();
    ::_exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  gate.open();
  waiter.join();
  EXPECT_EQ(submit(*session, request(3)).wait().tokens.size(), 3U) << "the parent goes on";
}

}  // namespace
}  // namespace colibri::testing
