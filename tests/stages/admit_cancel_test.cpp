// admit: requests that are cancelled, wherever they are; what they held is given back, and the others go on.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>

#include "admit_bench.hpp"

namespace colibri::testing {
namespace {

// A request, and the switch that cancels it.
struct Cancellable {
  explicit Cancellable(Request plain) : request(std::move(plain)) { request.cancelled = flag; }
  void cancel() const { flag->store(true); }

  std::shared_ptr<std::atomic<bool>> flag = std::make_shared<std::atomic<bool>>(false);
  Request request;
};

// What the source's notify has posted arrives; nothing else happens.
Wait deliver_cancel(Bench& bench) {
  Message message;
  EXPECT_TRUE(bench.admit->context.take_posted(message, std::chrono::milliseconds(0)));
  return bench.admit->send(kCompletionPort, message);
}

Wait tell(Bench& bench) {
  EXPECT_TRUE(bench.source.tell_cancelled) << "admit does not listen";
  bench.source.tell_cancelled();
  return deliver_cancel(bench);
}

// The answers so far, all of them to cancelled requests: by index, how many tokens each has.
std::map<std::uint64_t, std::size_t> cancelled_answers(Bench& bench) {
  std::map<std::uint64_t, std::size_t> answers;
  for (const RequestResult& result : bench.outcomes()) {
    EXPECT_EQ(result.error.code(), ErrorCode::cancelled) << result.index;
    EXPECT_EQ(result.finish_reason, FinishReason::error);
    EXPECT_EQ(result.id, "r" + std::to_string(result.index));
    EXPECT_TRUE(answers.emplace(result.index, result.tokens.size()).second) << "answered twice";
  }
  return answers;
}

using Answers = std::map<std::uint64_t, std::size_t>;

// A step of prompts alone is back, its results are not: its sequences stay, whatever is cancelled, until
// these are out, and one of them that goes on is in the next step.
TEST(AdmitCancel, SequencesStayUntilTheirResultsAreOut) {
  Bench bench(32, 32, 1, 8, /*finite=*/false);
  const Cancellable whole(prompt(0, 20, 1, Task::score)), cut(prompt(1, 30, 1, Task::score));
  bench.send(whole.request);
  bench.send(cut.request);
  bench.admit->resume();
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 32U);
  EXPECT_TRUE(step->answered_later);
  Sequence* const first = step->sequences[0];
  EXPECT_EQ(bench.admit->count("kv_pages"), 4U);
  bench.admit->send(0, {.type = MessageType::step_done, .count = 1, .object = step});
  EXPECT_EQ(bench.admit->count("kv_pages"), 2U) << "keys of a whole prompt are not needed for its results";
  bench.admit->resume();
  step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 18U) << "the rest of the second one";
  whole.cancel();
  cut.cancel();
  tell(bench);
  EXPECT_TRUE(bench.outcomes().empty());
  EXPECT_EQ(bench.admit->count("running"), 2U);
  first->finished = true;  // its result was on its way before
  bench.admit->send(0, {.type = MessageType::step_done});
  EXPECT_EQ(bench.admit->count("running"), 1U);
  EXPECT_TRUE(bench.outcomes().empty());
  bench.finish(*step);
  EXPECT_EQ(bench.admit->count("running"), 0U);
  EXPECT_EQ(bench.admit->count("kv_pages"), 0U);
}

// A prompt of many steps is in one after the other. Each second one ends with a look at it; cancelled in one
// of the others it is in none any more, and leaves when results are out.
TEST(AdmitCancel, ALongPromptThatIsCancelledIsInNoOtherStep) {
  Bench bench(32, 32, 1, 8, /*finite=*/false);
  const Cancellable lengthy(prompt(0, 120, 1, Task::score));
  bench.send(lengthy.request);
  int steps = 0;
  for (const bool later : {true, false, true}) {
    bench.admit->resume();
    Step* const step = bench.next_step();
    ASSERT_NE(step, nullptr);
    EXPECT_EQ(step->answered_later, later);
    if (++steps == 3) lengthy.cancel();
    if (later) {
      bench.admit->send(0, {.type = MessageType::step_done, .count = 1, .object = step});
    } else {
      bench.admit->send(0, {.type = MessageType::step_done});  // results of the step before
      bench.finish(*step);
    }
  }
  tell(bench);
  bench.admit->resume();
  EXPECT_EQ(bench.next_step(), nullptr);
  EXPECT_TRUE(bench.outcomes().empty()) << "results are to come";
  bench.admit->send(0, {.type = MessageType::step_done});
  EXPECT_EQ(cancelled_answers(bench), (Answers{{0, 0}}));
  EXPECT_EQ(bench.admit->count("kv_pages"), 0U);
}

TEST(AdmitCancel, AWaitingRequestIsAnsweredWhileAnotherHasTheKvRoom) {
  Bench bench(32, 32, 1, 4, /*finite=*/false);
  bench.send(prompt(0, 20, 44));  // all 4 pages
  bench.admit->resume();
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  const Cancellable waiting(prompt(1, 20, 20)), other(prompt(2, 30, 20));
  bench.send(waiting.request);
  bench.send(other.request);
  EXPECT_TRUE(bench.outcomes().empty());
  waiting.cancel();
  tell(bench);
  const auto results = bench.outcomes();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].index, 1U);
  EXPECT_EQ(results[0].error.code(), ErrorCode::cancelled);
  EXPECT_EQ(results[0].prompt_tokens, 20U);
  EXPECT_EQ(bench.admit->count("waiting"), 1U);
  EXPECT_EQ(bench.admit->count("cancelled_total"), 1U);
  // The one behind it starts when there is room, with a whole step for itself.
  bench.finish(*step, /*stop_all=*/true);
  bench.admit->resume();
  step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 30U);
  EXPECT_EQ(step->sequences[0]->request.index, 2U);
}

TEST(AdmitCancel, OneInAStepIsAnsweredAtItsEndAndItsPagesServeTheNext) {
  Bench bench(64, 64, 1, 4, /*finite=*/false);
  const Cancellable first(prompt(0, 20, 44)), second(prompt(1, 17, 44));
  bench.send(first.request);
  bench.send(second.request);
  bench.admit->resume();
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 20U);
  first.cancel();
  tell(bench);
  EXPECT_TRUE(bench.outcomes().empty()) << "its rows are in a step";
  step->sequences[0]->result.tokens = {7, 8, 9};
  bench.finish(*step);
  EXPECT_EQ(cancelled_answers(bench), (Answers{{0, 3}}));
  bench.admit->resume();
  step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 17U) << "the second one alone";
  bench.finish(*step, /*stop_all=*/true);
  EXPECT_EQ(bench.admit->count("kv_pages"), 0U);
  EXPECT_EQ(bench.admit->count("running"), 0U);
}

TEST(AdmitCancel, NoFurtherRowsOfALongPromptAreComputed) {
  for (const Task task : {Task::generate, Task::score, Task::embed}) {
    Bench bench(8, 8, 1, 32, /*finite=*/false);
    const Cancellable longer(prompt(0, 60, 4, task));
    bench.send(longer.request);
    bench.send(prompt(1, 3, 2));
    bench.admit->resume();
    Step* step = bench.next_step();
    ASSERT_NE(step, nullptr);
    bench.finish(*step);
    bench.admit->resume();
    step = bench.next_step();  // positions 8 to 15
    ASSERT_NE(step, nullptr);
    longer.cancel();
    bench.finish(*step);
    EXPECT_EQ(cancelled_answers(bench), (Answers{{0, 0}}));
    bench.admit->resume();
    step = bench.next_step();
    ASSERT_NE(step, nullptr);
    for (const RowSummary& row : rows_of(*step)) EXPECT_EQ(row.index, 1U);
    EXPECT_EQ(bench.admit->count("prompt_rows_total"), 16U + 3U);
  }
}

// Running, but without a place in the steps that are under way.
TEST(AdmitCancel, OneBetweenItsStepsIsAnsweredAtOnce) {
  Bench bench(4, 4, 1, 32, /*finite=*/false);
  const Cancellable longer(prompt(0, 60, 4));
  bench.send(prompt(1, 3, 9));
  bench.send(longer.request);
  bench.admit->resume();
  Step* step = bench.next_step();  // 3 rows and 1
  ASSERT_NE(step, nullptr);
  bench.send(prompt(2, 4, 9));
  bench.finish(*step);
  longer.cancel();  // it is in no step until admit resumes
  tell(bench);
  EXPECT_EQ(cancelled_answers(bench), (Answers{{0, 0}}));
  bench.admit->resume();
  step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(rows_of(*step)[0].index, 1U);
  EXPECT_EQ(rows_of(*step)[1].index, 2U);
}

TEST(AdmitCancel, WhatWasNotReadYetIsAnsweredToo) {
  Bench bench(4, 4, 1, 32, /*finite=*/false);
  bench.send(prompt(0, 4, 9));
  bench.admit->resume();
  ASSERT_NE(bench.next_step(), nullptr);
  for (std::uint64_t i = 1; i <= 5; ++i) {
    const Cancellable request(prompt(i, 4, 9));
    request.cancel();
    bench.source.unread.push_back(request.request);
  }
  tell(bench);
  EXPECT_EQ(cancelled_answers(bench), (Answers{{1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}}));
}

// Read, and held back since enough wait already: they are taken in until all have been looked at.
TEST(AdmitCancel, WhatWasHeldBackIsTakenIn) {
  Bench bench(4, 4, 1, 32, /*finite=*/false, {.params = {{"waiting", "2"}}});
  bench.send(prompt(0, 4, 9));
  bench.admit->resume();
  ASSERT_NE(bench.next_step(), nullptr);
  bench.send(prompt(1, 4, 9));
  EXPECT_EQ(bench.send(prompt(2, 4, 9)), Wait::memory);
  const Cancellable held(prompt(4, 4, 9));
  held.cancel();
  bench.source.pulls = 5;
  EXPECT_EQ(tell(bench), Wait::none);
  EXPECT_EQ(bench.send(prompt(3, 4, 9)), Wait::none);
  EXPECT_EQ(bench.send(held.request), Wait::memory) << "now it is as before";
  EXPECT_EQ(cancelled_answers(bench), (Answers{{4, 0}}));
}

TEST(AdmitCancel, ACancelledRequestNeedNotBeCheckedOrAnnounced) {
  Bench bench(8, 8, 1, 32, /*finite=*/false);
  const Cancellable early(prompt(0, 4, 9)), late(prompt(1, 4, 9));
  early.cancel();
  bench.send(early.request);
  EXPECT_EQ(cancelled_answers(bench), (Answers{{0, 0}}));
  // Cancelled while it waits, and nobody tells: no row of it is computed, and no empty step is built.
  bench.send(late.request);
  late.cancel();
  bench.admit->resume();
  EXPECT_EQ(bench.next_step(), nullptr);
  EXPECT_EQ(cancelled_answers(bench), (Answers{{1, 0}}));
  EXPECT_EQ(bench.admit->count("steps_total"), 0U);
  bench.send(prompt(2, 4, 9));
  bench.admit->resume();
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows, 4U);
  bench.admit->end_of_input();
  bench.finish(*step, /*stop_all=*/true);
  EXPECT_TRUE(bench.admit->emitter.ended);
}

TEST(AdmitCancel, OneThatFinishedInTheStepKeepsItsResult) {
  Bench bench(8, 8, 1, 32, /*finite=*/false);
  const Cancellable request(prompt(0, 4, 9));
  bench.send(request.request);
  bench.admit->resume();
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  request.cancel();
  bench.finish(*step, /*stop_all=*/true);  // sample has answered it
  EXPECT_TRUE(bench.outcomes().empty());
  EXPECT_EQ(bench.admit->count("kv_pages"), 0U);
}

// The harness throws when more is sent in a call than the port has room for.
TEST(AdmitCancel, ManyAnswersWaitForRoom) {
  Bench bench(4, 4, 1, 64, /*finite=*/false, {.room = 3});
  bench.send(prompt(0, 4, 9));
  bench.admit->resume();
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  std::vector<Cancellable> requests;
  for (std::uint64_t i = 1; i <= 10; ++i) {
    requests.emplace_back(prompt(i, 4, 9));
    bench.send(requests.back().request);
  }
  for (const Cancellable& request : requests) request.cancel();
  bench.admit->end_of_input();
  EXPECT_EQ(tell(bench), Wait::output_space);
  int calls = 0;
  while (bench.admit->last_wait == Wait::output_space) {
    bench.admit->resume();
    ASSERT_LT(++calls, 10);
  }
  EXPECT_FALSE(bench.admit->emitter.ended) << "one is in a step";
  EXPECT_EQ(cancelled_answers(bench).size(), 10U);
  bench.finish(*step, /*stop_all=*/true);
  EXPECT_TRUE(bench.admit->emitter.ended);
}

TEST(AdmitCancel, TheLongestFirstIsFoundAmongTheRest) {
  Bench bench(4, 4, 1, 64, /*finite=*/false, {.params = {{"order", "longest_first"}}});
  bench.send(prompt(0, 4, 200));
  bench.admit->resume();
  Step* step = bench.next_step();
  ASSERT_NE(step, nullptr);
  const Cancellable longest(prompt(1, 4, 100));
  bench.send(prompt(2, 4, 20));
  bench.send(longest.request);
  bench.send(prompt(3, 4, 50));
  longest.cancel();
  tell(bench);
  EXPECT_EQ(cancelled_answers(bench), (Answers{{1, 0}}));
  EXPECT_EQ(bench.admit->count("waiting"), 2U);
  bench.finish(*step, /*stop_all=*/true);
  bench.admit->resume();
  step = bench.next_step();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->sequences[0]->request.index, 3U);
}

// After its stop admit has no port that a source could post to.
TEST(AdmitCancel, StopTakesTheQuestionBack) {
  Bench bench(4, 4, 1, 8);
  EXPECT_TRUE(bench.source.tell_cancelled);
  bench.admit.reset();
  EXPECT_FALSE(bench.source.tell_cancelled);
}

}  // namespace
}  // namespace colibri::testing
