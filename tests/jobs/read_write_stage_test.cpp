// The read and write stages, driven without threads; sources and sinks over real files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stages/jsonl_sink.hpp"
#include "stages/jsonl_source.hpp"
#include "stages/read.hpp"
#include "stages/write.hpp"
#include "tests/jobs/temporary_folder.hpp"
#include "tests/support/stage_harness.hpp"

namespace colibri {
namespace {

using testing::StageHarness;

const StageKind kRead = {.info = &kReadInfo, .create = create_read};
const StageKind kWrite = {.info = &kWriteInfo, .create = create_write};

RequestDefaults small_vocabulary() {
  RequestDefaults defaults;
  defaults.vocab_size = 100;
  return defaults;
}

struct ReadFixture {
  explicit ReadFixture(RequestSource* source) {
    spec.max_seq_len = 64;
    services.plan.spec = &spec;
    services.source = source;
  }
  // All sequences until the stage ends or waits.
  std::vector<std::unique_ptr<Sequence>> run(StageHarness& stage) {
    std::vector<std::unique_ptr<Sequence>> sequences;
    while (stage.resume() == Wait::none) {
      Message message;
      EXPECT_TRUE(stage.take(0, message));
      EXPECT_EQ(message.type, MessageType::request);
      sequences.emplace_back(message.sequence());
    }
    EXPECT_EQ(stage.last_wait, Wait::input);
    return sequences;
  }
  ModelSpec spec;
  Services services;
};

TEST(ReadStage, TurnsLinesIntoSequences) {
  TemporaryFolder folder;
  const std::string path =
      folder.write("in",
                   "{\"id\":\"a\",\"tokens\":[1,2,3],\"max_tokens\":5}\n\n{\"id\":\"b\"}\n"
                   "{\"id\":\"c\",\"tokens\":[4],\"max_tokens\":2000000000}\n");
  JsonlSource source(JsonlReader::open(path).value(), {.defaults = small_vocabulary()});
  EXPECT_TRUE(source.finite());
  ReadFixture fixture(&source);
  StageHarness stage(kRead, fixture.services, {.room = 1});
  ASSERT_TRUE(stage.started.is_ok());
  const auto sequences = fixture.run(stage);
  EXPECT_TRUE(stage.emitter.ended);
  ASSERT_EQ(sequences.size(), 3U);
  EXPECT_EQ(sequences[0]->tokens, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(sequences[0]->prompt_size, 3U);
  EXPECT_GE(sequences[0]->tokens.capacity(), 8U);
  EXPECT_FALSE(sequences[1]->request.error.is_ok());
  EXPECT_EQ(sequences[1]->request.index, 2U);
  EXPECT_LE(sequences[2]->tokens.capacity(), 64U) << "a line must not decide how much memory is taken";
  EXPECT_EQ(stage.count("requests_total"), 3U);
  EXPECT_EQ(stage.count("bad_requests_total"), 1U);
  EXPECT_EQ(stage.count("prompt_tokens_total"), 4U);
  EXPECT_EQ(source.requests(), 3U);
  EXPECT_EQ(source.bytes_read(), source.bytes_total());
  EXPECT_EQ(stage.resume(), Wait::input) << "after its end it stays quiet";
}

TEST(ReadStage, LeavesOutCompletedLines) {
  TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 6; ++i) content += "{\"id\":" + std::to_string(i) + ",\"tokens\":[1]}\n";
  ResultIndexSet completed;
  for (const int index : {0, 3, 5}) completed.insert(static_cast<std::uint64_t>(index));
  JsonlSource source(JsonlReader::open(folder.write("in", content)).value(),
                     {.defaults = small_vocabulary(), .completed = &completed});
  ReadFixture fixture(&source);
  StageHarness stage(kRead, fixture.services);
  std::vector<std::string> ids;
  for (const auto& sequence : fixture.run(stage)) ids.push_back(sequence->request.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"1", "2", "4"}));
  EXPECT_EQ(source.lines_read(), 6U);
}

TEST(ReadStage, StopsPullingWhenTheJobStops) {
  TemporaryFolder folder;
  JsonlSource source(JsonlReader::open(folder.write("in", "{\"tokens\":[1]}\n{\"tokens\":[1]}\n")).value(),
                     {.defaults = small_vocabulary()});
  ReadFixture fixture(&source);
  bool stopping = false;
  fixture.services.stopping = [&] { return stopping; };
  StageHarness stage(kRead, fixture.services);
  EXPECT_EQ(stage.resume(), Wait::none);
  stopping = true;
  EXPECT_EQ(stage.resume(), Wait::input);
  EXPECT_TRUE(stage.emitter.ended);
  Message message;
  ASSERT_TRUE(stage.take(0, message));
  delete message.sequence();
  EXPECT_EQ(source.requests(), 1U);
}

TEST(ReadStage, NeedsASource) {
  ReadFixture fixture(nullptr);
  StageHarness stage(kRead, fixture.services);
  EXPECT_EQ(stage.started.to_string(),
            "a pipeline with a read stage needs a source of requests: stage 'read'; set Services::source");
}

// Has something only when it is given something.
class ScriptedSource final : public RequestSource {
 public:
  Pull pull(Request& request) override {
    if (waiting.empty()) return closed ? Pull::end : Pull::wait;
    request = std::move(waiting.front());
    waiting.pop_front();
    return Pull::request;
  }
  bool finite() const override { return false; }
  void on_ready(std::function<void()> notify) override { notify_read = std::move(notify); }

  std::deque<Request> waiting;
  bool closed = false;
  std::function<void()> notify_read;
};

TEST(ReadStage, WaitsUntilTheSourceHasMore) {
  ScriptedSource source;
  ReadFixture fixture(&source);
  StageHarness stage(kRead, fixture.services);
  EXPECT_TRUE(fixture.run(stage).empty());
  EXPECT_FALSE(stage.emitter.ended);
  ASSERT_TRUE(source.notify_read);
  EXPECT_TRUE(stage.context.posted.empty());
  source.waiting.resize(1);
  source.notify_read();
  ASSERT_EQ(stage.context.posted.size(), 1U);
  EXPECT_EQ(stage.send(kCompletionPort, stage.context.posted.front()), Wait::none);
  Message message;
  ASSERT_TRUE(stage.take(0, message));
  delete message.sequence();
  source.closed = true;
  EXPECT_EQ(stage.resume(), Wait::input);
  EXPECT_TRUE(stage.emitter.ended);
}

TEST(ReadStage, TakesItsQuestionBackWhenItStops) {
  ScriptedSource source;
  ReadFixture fixture(&source);
  {
    StageHarness stage(kRead, fixture.services);
    EXPECT_TRUE(fixture.run(stage).empty());
    EXPECT_TRUE(source.notify_read);
  }
  EXPECT_FALSE(source.notify_read);
}

TEST(JsonlSource, WaitsForAPipeAndTellsRepeatedIds) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  UniqueDescriptor write_end(ends[1]);
  ResultIndexSet completed;
  completed.insert(0);
  JsonlSource source(JsonlReader::from_descriptor(UniqueDescriptor(ends[0]), "pipe").value(),
                     {.defaults = small_vocabulary(), .completed = &completed, .check_ids = true});
  EXPECT_FALSE(source.finite());
  Request request;
  EXPECT_EQ(source.pull(request), RequestSource::Pull::wait);
  const std::string lines =
      "{\"id\":\"a\",\"tokens\":[1]}\n{\"id\":\"b\",\"tokens\":[1]}\n{\"id\":\"a\",\"tokens\":[2]}\n";
  ASSERT_EQ(::write(write_end.get(), lines.data(), lines.size()), static_cast<ssize_t>(lines.size()));
  write_end.reset();
  std::promise<void> ready;
  source.on_ready([&] { ready.set_value(); });
  ready.get_future().wait();
  ASSERT_EQ(source.pull(request), RequestSource::Pull::request);
  EXPECT_EQ(request.id, "b");
  EXPECT_TRUE(request.error.is_ok());
  ASSERT_EQ(source.pull(request), RequestSource::Pull::request);
  EXPECT_EQ(request.error.to_string(), "an earlier line has the same id: 'a'; give each line its own id");
  EXPECT_EQ(source.pull(request), RequestSource::Pull::end);
  EXPECT_TRUE(source.failure().is_ok());
}

TEST(JsonlSource, KeepsAReadFailure) {
  TemporaryFolder folder;
  const std::string path = folder.write("in", "\xFF\xFE{}");
  JsonlSource source(JsonlReader::open(path).value(), {.defaults = small_vocabulary()});
  Request request;
  EXPECT_EQ(source.pull(request), RequestSource::Pull::end);
  EXPECT_EQ(source.failure().to_string(), "the file is UTF-16, not UTF-8: '" + path + "'; save it as UTF-8");
}

// ---- write ------------------------------------------------------------------------------------

class RecordingSink final : public ResultSink {
 public:
  Status result(RequestResult&& result) override {
    if (results.size() == fail_at) return {ErrorCode::io, "disk full"};
    results.push_back(std::move(result));
    return {};
  }
  void piece(std::uint64_t index, std::string_view text) override { pieces.emplace_back(index, text); }
  Status flush() override {
    ++flushes;
    return fail_flush ? Status(ErrorCode::io, "sync failed") : Status();
  }
  std::vector<RequestResult> results;
  std::vector<std::pair<std::uint64_t, std::string>> pieces;
  std::size_t fail_at = ~std::size_t{0};
  bool fail_flush = false;
  int flushes = 0;
};

Message outcome(std::uint64_t index, Status error = {}) {
  auto* outcome = new Outcome;
  outcome->result.index = index;
  outcome->result.tokens = {1, 2};
  outcome->result.error = std::move(error);
  Message message;
  message.type = MessageType::outcome;
  message.object = outcome;
  return message;
}

struct WriteFixture {
  WriteFixture() {
    services.sink = &sink;
    services.fail_job = [this](Status status) { failures.push_back(status.to_string()); };
  }
  RecordingSink sink;
  std::vector<std::string> failures;
  Services services;
};

TEST(WriteStage, HandsOnResultsAndPieces) {
  WriteFixture fixture;
  StageHarness stage(kWrite, fixture.services, {.params = {{"flush_seconds", "0"}}});
  ASSERT_TRUE(stage.started.is_ok());
  Message piece = outcome(3);
  piece.outcome()->done = false;
  piece.outcome()->piece = "Hal";
  EXPECT_EQ(stage.send(0, piece), Wait::none);
  EXPECT_EQ(stage.send(0, outcome(3)), Wait::input);
  EXPECT_EQ(stage.send(0, outcome(1, Status(ErrorCode::capacity, "x"))), Wait::input);
  EXPECT_EQ(fixture.sink.flushes, 0) << "results of one step are flushed together";
  EXPECT_EQ(stage.resume(), Wait::none);
  EXPECT_EQ(fixture.sink.flushes, 1);
  stage.end_of_input();
  EXPECT_EQ(fixture.sink.flushes, 1) << "nothing new since";
  EXPECT_EQ(fixture.sink.pieces, (std::vector<std::pair<std::uint64_t, std::string>>{{3, "Hal"}}));
  ASSERT_EQ(fixture.sink.results.size(), 2U);
  EXPECT_EQ(stage.count("results_total"), 2U);
  EXPECT_EQ(stage.count("failed_results_total"), 1U);
  EXPECT_EQ(stage.count("generated_tokens_total"), 4U);
  EXPECT_EQ(stage.count("flushes_total"), 1U);
}

TEST(WriteStage, FlushesAtMostOnceInAnInterval) {
  WriteFixture fixture;
  StageHarness stage(kWrite, fixture.services, {.params = {{"flush_seconds", "3600"}}});
  for (std::uint64_t i = 0; i < 5; ++i) {
    stage.send(0, outcome(i));
    stage.resume();
  }
  EXPECT_EQ(fixture.sink.flushes, 0);
  stage.end_of_input();
  EXPECT_EQ(fixture.sink.flushes, 1) << "the end never waits";
}

TEST(WriteStage, TheIntervalMayChangeWhileItRuns) {
  WriteFixture fixture;
  StageHarness stage(kWrite, fixture.services, {.params = {{"flush_seconds", "3600"}}});
  const auto result = [&](std::uint64_t index) {
    stage.send(0, outcome(index));
    stage.resume();
  };
  result(0);
  EXPECT_EQ(fixture.sink.flushes, 0);
  stage.context.set("flush_seconds", "0");
  stage.resume();
  EXPECT_EQ(fixture.sink.flushes, 1) << "what waited for the old interval goes at once";
  stage.context.set("flush_seconds", "3600");
  for (std::uint64_t i = 1; i < 5; ++i) result(i);
  EXPECT_EQ(fixture.sink.flushes, 1);
}

TEST(WriteStage, AFailedSinkFailsTheJobOnceAndDropsTheRest) {
  WriteFixture fixture;
  fixture.sink.fail_at = 1;
  StageHarness stage(kWrite, fixture.services);
  for (std::uint64_t i = 0; i < 4; ++i) stage.send(0, outcome(i));
  stage.end_of_input();
  EXPECT_EQ(fixture.failures, std::vector<std::string>{"disk full"});
  EXPECT_EQ(fixture.sink.results.size(), 1U);
  EXPECT_EQ(fixture.sink.flushes, 0);
  EXPECT_EQ(stage.count("dropped_results_total"), 3U);
}

TEST(WriteStage, AFailedFlushFailsTheJob) {
  WriteFixture fixture;
  fixture.sink.fail_flush = true;
  StageHarness stage(kWrite, fixture.services, {.params = {{"flush_seconds", "0"}}});
  stage.send(0, outcome(0));
  stage.resume();
  stage.send(0, outcome(1));
  stage.resume();
  stage.end_of_input();
  EXPECT_EQ(fixture.failures, std::vector<std::string>{"sync failed"});
  EXPECT_EQ(fixture.sink.flushes, 1);
}

class StringOutput final : public ResultOutput {
 public:
  Status append(std::uint64_t, std::string_view line, bool) override {
    text += line;
    return {};
  }
  Status flush() override { return {}; }
  std::string text;
};

TEST(JsonlSink, WritesLinesAndCounts) {
  StringOutput output;
  JsonlSink sink(output, ResultWriter());
  RequestResult good;
  good.id = "g";
  RequestResult bad;
  bad.id = "b";
  bad.error = Status(ErrorCode::invalid_input, "x");
  EXPECT_TRUE(sink.result(std::move(good)).is_ok());
  EXPECT_TRUE(sink.result(std::move(bad)).is_ok());
  EXPECT_EQ(sink.succeeded(), 1U);
  EXPECT_EQ(sink.failed(), 1U);
  EXPECT_EQ(
      output.text,
      "{\"id\":\"g\",\"index\":0,\"text\":null,\"tokens\":[],\"prompt_tokens\":0,\"completion_tokens\":0,"
      "\"finish_reason\":\"stop\"}\n{\"id\":\"b\",\"index\":0,\"text\":null,\"tokens\":[],\"prompt_tokens\":"
      "0,"
      "\"completion_tokens\":0,\"finish_reason\":\"error\",\"error\":{\"code\":\"invalid_input\","
      "\"message\":\"x\"}}\n");
}

}  // namespace
}  // namespace colibri
