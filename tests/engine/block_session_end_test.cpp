// How calls of a BlockSession and the session itself end: cancelled, closed, destroyed, failed, forked. Every
// call is answered once.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <stdexcept>
#include <thread>

#include "tests/engine/block_session_fixture.hpp"

namespace colibri::testing {
namespace {

// Rows that are in no step are not computed: the third row of the call cancels it.
TEST_F(BlockSessions, CancelEndsACallBetweenSteps) {
  const auto engine = open_block(container_, {{"steps.max_rows", "1"}}, &registry_);
  Rows rows(engine->spec(), 0, std::vector<float>(std::size_t{50} * engine->spec().hidden_size, 1.0F));
  Rows next(engine->spec(), 2, std::vector<float>(std::size_t{2} * engine->spec().hidden_size, 1.0F));
  std::promise<SubmittedBlock> submitted;
  auto call = submitted.get_future();
  int seen = 0;
  const ScopedHooks hooks({.before = [&](const std::string& name, Call kind) {
    if (name == "block_out" && kind == Call::on_message && ++seen == 3) call.get().cancel();
  }});
  const auto session = start(*engine);
  ASSERT_NE(session, nullptr);
  const SubmittedBlock block = session->submit(rows.call()).value();
  submitted.set_value(block);
  EXPECT_EQ(block.wait().status.to_string(), "the call was cancelled");
  EXPECT_EQ(block.wait().status.code(), ErrorCode::cancelled);
  EXPECT_TRUE(session->run(next.call()).status.is_ok()) << "others go on";
  SubmittedBlock(block).cancel();  // answered: nothing happens
  EXPECT_EQ(session->close()->steps, 3U + 2U);
}

TEST_F(BlockSessions, CancelOfCallsThatHaveNotBegun) {
  const auto session = start(*engine_);
  ASSERT_NE(session, nullptr);
  std::deque<Rows> rows = some_rows(6);
  const std::uint64_t steps_of_first = (rows[0].rows + 15) / 16, steps_of_last = (rows[5].rows + 15) / 16;
  std::promise<void> held, go;
  const SubmittedBlock first = session
                                   ->submit(rows[0].call(),
                                            [&](const BlockAnswer&) {
                                              held.set_value();
                                              go.get_future().wait();
                                            })
                                   .value();
  held.get_future().wait();  // the pipeline waits for the host
  std::vector<SubmittedBlock> calls;
  for (std::size_t i = 1; i < 6; ++i) {
    calls.push_back(session->submit(rows[i].call()).value());
    if (i == 2) session->cancel();  // all so far, also the one that is answered right now
  }
  calls[2].cancel();
  calls[3].cancel();
  go.set_value();
  EXPECT_TRUE(first.wait().status.is_ok());
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(calls[i].wait().status.code(), ErrorCode::cancelled) << i;
  EXPECT_TRUE(calls[4].wait().status.is_ok());
  EXPECT_GT(calls[4].wait().latency_seconds, 0);
  EXPECT_EQ(session->close()->steps, steps_of_first + steps_of_last);
}

// A record that is damaged on disk fails the calls that need it; the answer tells of the first such row.
TEST_F(BlockSessions, AReadThatFailsReachesTheAnswer) {
  std::deque<Rows> asked = some_rows(1);
  asked = answered(std::move(asked), *engine_);
  const std::uint32_t layer = asked[0].layer;
  // The first expert that the first row does not pick, but another one does.
  std::size_t first_row = 0;
  std::uint32_t expert = 0;
  const auto row_with = [&](std::uint32_t which) {
    return static_cast<std::size_t>(std::find(asked[0].experts.begin(), asked[0].experts.end(), which) -
                                    asked[0].experts.begin()) /
           asked[0].k;
  };
  for (; expert < engine_->spec().num_experts; ++expert) {
    first_row = row_with(expert);
    if (first_row > 0 && first_row < asked[0].rows) break;
  }
  ASSERT_LT(expert, engine_->spec().num_experts);
  const auto damaged = container_.parent_path() / "damaged-for-block-sessions";
  std::filesystem::remove_all(damaged);  // of an earlier round
  std::filesystem::copy(container_, damaged, std::filesystem::copy_options::recursive);
  {
    const ExpertRecord record = engine_->container().record(layer, expert);
    std::fstream file(damaged / "experts.bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(record.offset + 100));
    file.write("damaged", 7);
    ASSERT_TRUE(file.good());
  }
  const auto engine = open_block(damaged, {{"memory.experts", "min"}, {"steps.max_rows", "5"}});
  ASSERT_NE(engine, nullptr);
  const auto session = start(*engine);
  ASSERT_NE(session, nullptr);
  for (int round = 0; round < 2; ++round) {
    const BlockAnswer answer = session->run(asked[0].call());
    EXPECT_EQ(answer.status.code(), ErrorCode::corrupt);
    const std::string place = "layer " + std::to_string(layer) + ", row " + std::to_string(first_row) + ": ";
    EXPECT_TRUE(answer.status.to_string().starts_with(place)) << answer.status.to_string();
    EXPECT_NE(answer.status.to_string().find(", expert " + std::to_string(expert)), std::string::npos)
        << answer.status.to_string();
    Rows other(engine->spec(), layer == 0 ? 2 : 0, std::vector<float>(engine->spec().hidden_size, 1.0F));
    EXPECT_TRUE(session->run(other.call()).status.is_ok()) << "calls that need other records go on";
  }
  EXPECT_TRUE(session->close().is_ok());
}

TEST_F(BlockSessions, CloseAnswersAllAndSaysTheSameAgain) {
  std::deque<Rows> rows = some_rows();
  const std::deque<Rows> expected = answered(rows, *engine_);
  const auto session = start(*engine_);
  ASSERT_NE(session, nullptr);
  std::vector<SubmittedBlock> calls;
  for (Rows& one : rows) calls.push_back(session->submit(one.call()).value());
  auto other = std::async(std::launch::async, [&] { return session->close(); });
  const auto report = session->close();
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(other.get()->steps, report->steps);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(calls[i].done());
    EXPECT_TRUE(calls[i].wait().status.is_ok());
    EXPECT_TRUE(rows[i].same_answer(expected[i]));
  }
  EXPECT_EQ(session->submit(rows[0].call()).status().to_string(),
            "the session is closed; start another one for more calls");
  EXPECT_EQ(session->run(rows[0].call()).status.code(), ErrorCode::cancelled);
  EXPECT_EQ(session->close()->steps, report->steps);
  EXPECT_EQ(session->stats().steps, report->steps);
  EXPECT_TRUE(session->check(rows[0].call()).is_ok());
}

TEST_F(BlockSessions, DestructionAnswersOpenCalls) {
  for (int round = 0; round < 20; ++round) {
    auto session = start(*engine_);
    ASSERT_NE(session, nullptr);
    std::deque<Rows> rows = some_rows();
    std::vector<SubmittedBlock> calls;
    std::atomic<int> told = 0;
    for (Rows& one : rows) {
      calls.push_back(session->submit(one.call(), [&](const BlockAnswer&) { ++told; }).value());
    }
    auto waits = std::async(std::launch::async, [&] { return calls.back().wait(); });
    std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    session.reset();
    EXPECT_EQ(told, static_cast<int>(rows.size()));
    (void)waits.get();
    for (SubmittedBlock& call : calls) {
      ASSERT_TRUE(call.done());
      const BlockAnswer answer = call.wait();
      EXPECT_TRUE(answer.status.is_ok() || answer.status.code() == ErrorCode::cancelled);
      call.cancel();
    }
  }
  expect_usable();
}

TEST_F(BlockSessions, OneAtATimeAndOnlyOfHiddenStates) {
  {
    const auto session = start(*engine_);
    ASSERT_NE(session, nullptr);
    EXPECT_EQ(BlockSession::start(*engine_).status().code(), ErrorCode::invalid_input);
    EXPECT_NE(BlockSession::start(*engine_).status().to_string().find("a job runs on this engine already"),
              std::string::npos);
    std::deque<Rows> rows = some_rows(1);
    EXPECT_TRUE(session->run(rows[0].call()).status.is_ok()) << "the first goes on";
  }
  expect_usable();
  const auto whole = open_engine(container_);
  ASSERT_NE(whole, nullptr);
  const auto refused = BlockSession::start(*whole);
  EXPECT_EQ(refused.status().code(), ErrorCode::invalid_input);
  EXPECT_NE(refused.status().to_string().find("takes requests, not hidden states"), std::string::npos);
}

TEST_F(BlockSessions, AJobThatFailsAnswersAll) {
  std::atomic<int> left = 3;
  std::deque<Rows> rows = some_rows();
  {
    const ScopedHooks hooks({.before = [&](const std::string& name, Call call) {
      if (name == "compute" && call != Call::tile && --left == 0) throw std::runtime_error("test: broken");
    }});
    const auto session = start(*engine_);
    ASSERT_NE(session, nullptr);
    std::vector<SubmittedBlock> calls;
    Status refused;
    for (Rows& one : rows) {
      auto submitted = session->submit(one.call());
      if (!submitted) {
        refused = submitted.status();
        break;
      }
      calls.push_back(*submitted);
    }
    EXPECT_NE(calls.back().wait().status.to_string().find("stage compute: "), std::string::npos)
        << calls.back().wait().status.to_string();
    EXPECT_EQ(calls.back().wait().status.code(), ErrorCode::internal);
    EXPECT_EQ(session->submit(rows[0].call()).status().to_string(), calls.back().wait().status.to_string());
    EXPECT_EQ(session->close().status().to_string(), calls.back().wait().status.to_string());
  }
  expect_usable();
}

TEST_F(BlockSessions, ACallbackThatThrowsEndsTheJobByName) {
  std::deque<Rows> rows = some_rows(2);
  {
    const auto session = start(*engine_);
    ASSERT_NE(session, nullptr);
    const SubmittedBlock first =
        session->submit(rows[0].call(), [](const BlockAnswer&) { throw std::runtime_error("test: no"); })
            .value();
    EXPECT_TRUE(first.wait().status.is_ok());
    const auto report = session->close();
    ASSERT_FALSE(report.is_ok());
    EXPECT_NE(report.status().to_string().find("exception of the host's callback: test: no"),
              std::string::npos)
        << report.status().to_string();
  }
  expect_usable();
}

TEST_F(BlockSessions, EngineCancelEndsTheSession) {
  const auto session = start(*engine_);
  ASSERT_NE(session, nullptr);
  std::deque<Rows> rows = some_rows(2);
  EXPECT_TRUE(session->run(rows[0].call()).status.is_ok());
  engine_->cancel();
  EXPECT_EQ(session->close().status().code(), ErrorCode::cancelled);
  EXPECT_EQ(session->run(rows[1].call()).status.code(), ErrorCode::cancelled);
}

// In a child that fork made every function says so at once, whatever the parent's threads were doing.
TEST_F(BlockSessions, AfterForkEverythingSaysSo) {
  auto session = start(*engine_);
  ASSERT_NE(session, nullptr);
  std::deque<Rows> rows = some_rows();
  std::promise<void> forked_now;  // until then the pipeline waits for the host
  std::vector<SubmittedBlock> calls = {
      session->submit(rows[0].call(), [&](const BlockAnswer&) { forked_now.get_future().wait(); }).value()};
  for (Rows& one : rows) calls.push_back(session->submit(one.call()).value());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto forked = [](const Status& status) { return status.code() == ErrorCode::forked; };
    bool right = forked(session->check(rows[0].call())) && forked(session->submit(rows[0].call()).status()) &&
                 forked(session->run(rows[0].call()).status) && session->stats().steps == 0;
    session->cancel();
    for (SubmittedBlock& call : calls) {
      call.cancel();
      right = right && call.done() && forked(call.wait().status);
    }
    right = right && forked(session->close().status());
    right = right && forked(BlockSession::start(*engine_).status());
    session.reset();
    calls.clear();
    ::_exit(right ? 0 : 1);
  }
  forked_now.set_value();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  for (const SubmittedBlock& call : calls) EXPECT_TRUE(call.wait().status.is_ok()) << "the parent goes on";
  EXPECT_TRUE(session->close().is_ok());
}

}  // namespace
}  // namespace colibri::testing
