// sample: when a request is finished and with what, for logits that the test chooses.
//
// Hidden size and vocabulary are equal and the head is the identity, so a residual row that
// is 1 at one entry gives that token. Tokens stand for bytes, so text can be cut anywhere.
#include <gtest/gtest.h>

#include <cmath>

#include "dense_pipeline.hpp"
#include "io/text/tokenizer.hpp"

namespace colibri::testing {
namespace {

// a = 0, b = 1, c = 2, space = 3, the two bytes of e acute = 4 and 5, "ab" = 6, end = 7.
constexpr char kTokenizerJson[] = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 7, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
  "post_processor": null,
  "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {"a": 0, "b": 1, "c": 2, "\u0120": 3, "\u00c3": 4, "\u00a9": 5, "ab": 6}, "merges": ["a b"]}
})";
enum Token : std::int32_t { kA, kB, kC, kSpace, kAcute1, kAcute2, kAb, kEnd };
constexpr std::uint32_t kVocab = 16;

ModelSpec identity_spec() {
  ModelSpec spec = small_spec({true});
  spec.hidden_size = kVocab;
  spec.vocab_size = kVocab;
  spec.stop_tokens = {kEnd};
  return spec;
}

class SampleBench {
 public:
  explicit SampleBench(bool with_text = true, std::uint32_t room = 1U << 20)
      : model_(identity_spec(), 1), job_(identity(model_), 64, 4, 1, 4) {
    if (with_text) {
      tokenizer_ = std::move(Tokenizer::parse(kTokenizerJson)).value();
      job_.services.tokenizer = tokenizer_.get();
    }
    sample_ = std::make_unique<StageHarness>(kSampleKind, job_.services, HarnessOptions{.room = room});
  }
  ~SampleBench() { outcomes(); }

  std::unique_ptr<Sequence> start(Request request) {
    auto sequence = std::make_unique<Sequence>();
    request.tokens = {kC, kA, kB};
    sequence->tokens = request.tokens;
    sequence->prompt_size = 3;
    sequence->request = std::move(request);
    return sequence;
  }

  // A row whose best token is `token`, by a wide margin.
  void add(Sequence& sequence, std::uint32_t position, std::uint8_t flags, std::int32_t token) {
    Step& step = job_.services.steps[0];
    const std::uint32_t row = step.rows++;
    step.sequences[row] = &sequence;
    step.positions[row] = position;
    step.flags[row] = flags;
    step.row_status[row] = Status();
    float* residual = step.residual + row * kVocab;
    for (std::uint32_t i = 0; i < kVocab; ++i) residual[i] = 0.01F * static_cast<float>(i);
    residual[token] = 1.0F;
  }

  void send_waves() {
    Step& step = job_.services.steps[0];
    StepCut(step);
    for (std::uint32_t w = 0; w < step.wave_count; ++w)
      sample_->send(0, {.type = MessageType::wave, .object = &step.waves[w]});
  }

  // Sends the step's waves; the outcomes of all.
  std::vector<Outcome> run() {
    Step& step = job_.services.steps[0];
    StepCut(step);
    std::vector<Outcome> all;
    for (std::uint32_t w = 0; w < step.wave_count; ++w) {
      EXPECT_EQ(sample_->level(0), 0U) << "the step is done only after its last wave";
      sample_->send(0, {.type = MessageType::wave, .object = &step.waves[w]});
      while (sample_->last_wait == Wait::output_space) sample_->resume();
    }
    Message message;
    EXPECT_TRUE(sample_->take(0, message));
    EXPECT_EQ(message.step(), &step);
    step.rows = 0;
    return outcomes();
  }

  // Generates the given tokens one step at a time until the request is finished.
  RequestResult generate(Request request, const std::vector<std::int32_t>& tokens,
                         std::vector<std::string>* pieces = nullptr) {
    const auto sequence = start(std::move(request));
    for (const std::int32_t token : tokens) {
      const auto position = static_cast<std::uint32_t>(sequence->tokens.size()) - 1;
      add(*sequence, position, position == 2 ? kRowSample | kRowLast : kRowSample, token);
      for (Outcome& outcome : run()) {
        if (!outcome.done) {
          if (pieces != nullptr) pieces->push_back(outcome.piece);
          continue;
        }
        EXPECT_TRUE(sequence->finished);
        return std::move(outcome.result);
      }
      EXPECT_FALSE(sequence->finished);
    }
    ADD_FAILURE() << "not finished";
    return {};
  }

  std::vector<Outcome> outcomes() {
    std::vector<Outcome> all;
    Message message;
    while (sample_->take(1, message)) all.push_back(*std::unique_ptr<Outcome>(message.outcome()));
    return all;
  }

  Step& step() { return job_.services.steps[0]; }
  StageHarness& stage() { return *sample_; }

 private:
  static const DenseModel& identity(DenseModel& model) {
    std::vector<float> head(kVocab * kVocab, 0.0F);
    for (std::uint32_t i = 0; i < kVocab; ++i) head[i * kVocab + i] = 1.0F;
    model.set("head.weight", head);
    model.set("final_norm.weight", std::vector<float>(kVocab, 1.0F));
    return model;
  }
  void StepCut(Step& step) {
    step.waves_sampled = 0;
    step.wave_count = (step.rows + 3) / 4;
    for (std::uint32_t w = 0; w < step.wave_count; ++w) {
      step.waves[w] = {&step, w, w * 4, std::min(step.rows, w * 4 + 4), 0};
    }
  }

  DenseModel model_;
  DenseJob job_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<StageHarness> sample_;
};

Request generate_request(std::uint32_t max_tokens, std::vector<std::string> stop = {}) {
  Request request;
  request.index = 5;
  request.id = "five";
  request.max_tokens = max_tokens;
  request.stop = std::move(stop);
  return request;
}

using Ids = std::vector<std::int32_t>;

TEST(DenseSample, StopsAtMaxTokens) {
  SampleBench bench;
  const RequestResult result = bench.generate(generate_request(3), {kAb, kSpace, kC});
  EXPECT_EQ(result.finish_reason, FinishReason::length);
  EXPECT_EQ(result.text, "ab c");
  EXPECT_EQ(result.tokens, (Ids{kAb, kSpace, kC}));
  EXPECT_EQ(result.id, "five");
  EXPECT_EQ(result.index, 5U);
  EXPECT_EQ(result.prompt_tokens, 3U);
  EXPECT_TRUE(result.has_text);
  EXPECT_EQ(bench.stage().count("generated_tokens_total"), 3U);
  EXPECT_EQ(bench.stage().count("finished_total"), 1U);
}

TEST(DenseSample, StopTokenEndsTheTextAndIsAToken) {
  SampleBench bench;
  const RequestResult result = bench.generate(generate_request(9), {kA, kEnd});
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
  EXPECT_EQ(result.text, "a");
  EXPECT_EQ(result.tokens, (Ids{kA, kEnd}));
  Request ignoring = generate_request(3);
  ignoring.ignore_eos = true;
  const RequestResult ignored = bench.generate(ignoring, {kA, kEnd, kB});
  EXPECT_EQ(ignored.finish_reason, FinishReason::length);
  EXPECT_EQ(ignored.tokens, (Ids{kA, kEnd, kB}));
}

TEST(DenseSample, StopStringAcrossTokensIsCut) {
  SampleBench bench;
  RequestResult result = bench.generate(generate_request(9, {"b c"}), {kA, kAb, kSpace, kC});
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
  EXPECT_EQ(result.text, "aa");
  EXPECT_EQ(result.tokens, (Ids{kA, kAb, kSpace, kC}));
  // What could have become a stop string is text after all.
  result = bench.generate(generate_request(3, {"b cc"}), {kB, kSpace, kC});
  EXPECT_EQ(result.finish_reason, FinishReason::length);
  EXPECT_EQ(result.text, "b c");
  result = bench.generate(generate_request(9, {"b cc"}), {kB, kSpace, kEnd});
  EXPECT_EQ(result.text, "b ");
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
}

TEST(DenseSample, StreamsPiecesThatMakeUpTheText) {
  SampleBench bench;
  Request request = generate_request(9, {"cc"});
  request.stream = true;
  std::vector<std::string> pieces;
  const RequestResult result = bench.generate(request, {kA, kAcute1, kAcute2, kC, kB, kC, kC}, &pieces);
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "\xC3\xA9", "cb"}));
  EXPECT_EQ(result.text,
            "a\xC3\xA9"
            "cb");
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
}

TEST(DenseSample, WithoutATokenizerThereAreOnlyTokens) {
  SampleBench bench(/*with_text=*/false);
  const RequestResult result = bench.generate(generate_request(2), {kA, kB});
  EXPECT_FALSE(result.has_text);
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.tokens, (Ids{kA, kB}));
}

TEST(DenseSample, LogprobsComeBeforeTemperature) {
  SampleBench bench;
  Request request = generate_request(1);
  request.logprobs_given = true;
  request.logprobs = 2;
  request.temperature = 100.0F;
  request.top_k = 1;
  const RequestResult result = bench.generate(request, {kB});
  ASSERT_EQ(result.logprobs.size(), 1U);
  // The residual row of the bench, normalised, is the logits.
  std::vector<double> logits(kVocab);
  double squares = 0, sum = 0;
  for (std::uint32_t i = 0; i < kVocab; ++i) logits[i] = i == kB ? 1.0 : 0.01 * i;
  for (const double x : logits) squares += x * x;
  for (double& x : logits) sum += std::exp(x /= std::sqrt(squares / kVocab + 1e-6));
  EXPECT_EQ(result.logprobs[0].token, kB);
  EXPECT_NEAR(result.logprobs[0].logprob, logits[kB] - std::log(sum), 1e-5);
  ASSERT_EQ(result.logprobs[0].top.size(), 2U);
  EXPECT_EQ(result.logprobs[0].top[0].first, kB);
  EXPECT_EQ(result.logprobs[0].top[1].first, 15);
  EXPECT_NEAR(result.logprobs[0].top[1].second, logits[15] - std::log(sum), 1e-5);
}

TEST(DenseSample, SeedAndPositionDecideADraw) {
  SampleBench bench;
  auto drawn = [&](std::uint64_t seed) {
    Request request = generate_request(12);
    request.temperature = 50.0F;
    request.seed = seed;
    request.ignore_eos = true;
    return bench.generate(request, Ids(12, kA)).tokens;
  };
  EXPECT_EQ(drawn(3), drawn(3));
  EXPECT_NE(drawn(3), drawn(4));
  const Ids tokens = drawn(3);
  EXPECT_NE(tokens, Ids(12, tokens[0])) << "positions differ";
}

TEST(DenseSample, ScoresAndEmbeddingsEndWithTheLastPromptRow) {
  SampleBench bench;
  Request score;
  score.task = Task::score;
  Request mean;
  mean.task = Task::embed;
  mean.normalize = true;
  mean.index = 1;
  const auto scored = bench.start(score), embedded = bench.start(mean);
  bench.add(*scored, 0, kRowScore, kA);
  bench.add(*scored, 1, kRowScore, kC);
  bench.add(*scored, 2, kRowLast, kC);
  bench.add(*embedded, 0, kRowEmbed, kA);
  bench.add(*embedded, 1, kRowEmbed, kA);
  bench.add(*embedded, 2, kRowEmbed | kRowLast, kA);
  std::vector<Outcome> outcomes = bench.run();
  ASSERT_EQ(outcomes.size(), 2U);
  const RequestResult& result = outcomes[0].result;
  ASSERT_EQ(result.prompt_logprobs.size(), 2U);
  EXPECT_GT(result.prompt_logprobs[0], result.prompt_logprobs[1]) << "a was likely, b was not";
  EXPECT_FALSE(result.has_text);
  const std::vector<float>& embedding = outcomes[1].result.embedding;
  ASSERT_EQ(embedding.size(), kVocab);
  double squares = 0;
  for (const float value : embedding) squares += double{value} * value;
  EXPECT_NEAR(squares, 1.0, 1e-5);
  double row_squares = 0;
  for (std::uint32_t i = 0; i < kVocab; ++i) row_squares += i == kA ? 1.0 : 1e-4 * i * i;
  EXPECT_NEAR(embedding[kA], 1.0 / std::sqrt(row_squares), 1e-5);
  EXPECT_TRUE(scored->finished && embedded->finished);
  EXPECT_EQ(bench.stage().count("logit_rows_total"), 2U);
}

// The step comes back with its last wave, and is filled anew before anything of it was computed.
TEST(DenseSample, AStepThatIsAnsweredLaterComesBackFirst) {
  std::vector<std::vector<float>> logprobs;
  for (const bool later : {false, true}) {
    SampleBench bench;
    Request request;
    request.task = Task::score;
    const auto first = bench.start(request), second = bench.start(request);
    for (Sequence* sequence : {first.get(), second.get()}) {
      bench.add(*sequence, 0, kRowScore, kA);
      bench.add(*sequence, 1, kRowScore, kC);
      bench.add(*sequence, 2, kRowLast, kC);
    }
    Step& step = bench.step();
    step.answered_later = later;
    std::vector<Outcome> outcomes;
    if (later) {
      bench.send_waves();
      Message message;
      ASSERT_TRUE(bench.stage().take(0, message));
      EXPECT_EQ(message.step(), &step);
      EXPECT_EQ(message.count, 1U);
      EXPECT_TRUE(bench.outcomes().empty());
      EXPECT_FALSE(first->finished);
      std::fill_n(step.residual, step.rows * kVocab, 7.0F);
      std::fill_n(step.sequences, step.rows, nullptr);
      std::fill_n(step.flags, step.rows, std::uint8_t{kRowNone});
      while (bench.stage().last_wait == Wait::output_space) bench.stage().resume();
      ASSERT_TRUE(bench.stage().take(0, message));
      EXPECT_EQ(message.object, nullptr);
      outcomes = bench.outcomes();
    } else {
      outcomes = bench.run();
    }
    ASSERT_EQ(outcomes.size(), 2U);
    for (const Outcome& outcome : outcomes) logprobs.push_back(outcome.result.prompt_logprobs);
    EXPECT_TRUE(first->finished && second->finished);
  }
  EXPECT_EQ(logprobs[0], logprobs[2]);
  EXPECT_EQ(logprobs[1], logprobs[3]);
}

TEST(DenseSample, AFailedRowAnswersItsRequestOnceAndSparesTheOthers) {
  SampleBench bench;
  const auto bad = bench.start(generate_request(4)), good = bench.start(generate_request(1));
  bench.add(*bad, 0, kRowNone, kA);
  bench.add(*bad, 1, kRowNone, kA);
  bench.add(*bad, 2, kRowSample | kRowLast, kA);
  bench.add(*good, 2, kRowSample | kRowLast, kB);
  bench.step().row_status[0] = Status(ErrorCode::io, "read failed");
  bench.step().row_status[1] = Status(ErrorCode::io, "a later one");
  const std::vector<Outcome> outcomes = bench.run();
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_EQ(outcomes[0].result.finish_reason, FinishReason::error);
  EXPECT_EQ(outcomes[0].result.error.message(), "read failed");
  EXPECT_TRUE(bad->finished);
  EXPECT_EQ(bad->error.code(), ErrorCode::io);
  EXPECT_EQ(outcomes[1].result.tokens, Ids{kB});
  EXPECT_EQ(bench.stage().count("failed_total"), 1U);
}

TEST(DenseSample, LogitsThatAreNotFiniteAreAnError) {
  for (const float value : {std::nanf(""), HUGE_VALF}) {
    SampleBench bench;
    const auto sequence = bench.start(generate_request(4));
    bench.add(*sequence, 2, kRowSample | kRowLast, kA);
    bench.step().residual[3] = value;
    const std::vector<Outcome> outcomes = bench.run();
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_EQ(outcomes[0].result.error.code(), ErrorCode::corrupt);
    EXPECT_NE(outcomes[0].result.error.message().find("position 2"), std::string::npos);
  }
}

TEST(DenseSample, ASequenceWithSeveralBadRowsIsAnsweredOnce) {
  SampleBench bench;
  Request score;
  score.task = Task::score;
  const auto sequence = bench.start(score);
  for (std::uint32_t position = 0; position < 2; ++position) {
    bench.add(*sequence, position, kRowScore, kA);
    bench.step().residual[position * kVocab] = std::nanf("");
  }
  bench.add(*sequence, 2, kRowLast, kA);
  const std::vector<Outcome> outcomes = bench.run();
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_NE(outcomes[0].result.error.message().find("position 0"), std::string::npos);
  EXPECT_TRUE(outcomes[0].result.prompt_logprobs.empty());
}

TEST(DenseSample, WaitsForRoomWithManyOutcomes) {
  SampleBench bench(true, /*room=*/1);
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (int i = 0; i < 10; ++i) {
    sequences.push_back(bench.start(generate_request(1)));
    bench.add(*sequences.back(), 2, kRowSample | kRowLast, i % 2);
  }
  const std::vector<Outcome> outcomes = bench.run();
  ASSERT_EQ(outcomes.size(), 10U);
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_EQ(outcomes[i].result.tokens, Ids{static_cast<std::int32_t>(i % 2)});
}

}  // namespace
}  // namespace colibri::testing
