// Sessions of the C interface against what the engine answers to the same requests in a job.
#include <atomic>
#include <cmath>
#include <thread>

#include "tests/c_api/c_model.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

using namespace std::chrono_literals;

std::filesystem::path demo() {
  return container_of(
      std::filesystem::path(COLIBRI_TEST_DATA).parent_path() / "configs" / "demo" / "checkpoint",
      "config.json", "int8");
}

class Text : public ::testing::Test {
 protected:
  void SetUp() override { container_ = golden_container("olmoe", "config.json", "auto"); }

  // What a job of the engine itself answers.
  RequestResult expected(Request request) const {
    const auto engine = open_engine(container_, {{"memory.experts", "50%"}});
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    return run_job(*engine, std::move(requests)).results.at(0);
  }
  std::vector<std::int32_t> prompt(std::size_t i = 2) const { return golden_cases("olmoe").at(i).prompt; }
  std::filesystem::path container_;
};

TEST_F(Text, GeneratesWhatTheGoldenAndAJobDo) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  const CSession session(model);
  for (const GoldenCase& one : golden_cases("olmoe")) {
    CRequest request(one.prompt);
    request.max_tokens = static_cast<std::uint32_t>(one.greedy.size());
    request.ignore_eos = 1;
    request.logprobs = 1;
    CResult result;
    CError error;
    ASSERT_EQ(colibri_generate(session, &request, &result, &error), COLIBRI_OK) << error.message;
    EXPECT_EQ(result.generated(), one.greedy);
    EXPECT_EQ(result.logprobs_size, one.greedy.size());
    for (const float logprob : result.logs()) EXPECT_LE(logprob, 0);
    EXPECT_EQ(result.prompt_tokens, one.prompt.size());
    EXPECT_EQ(result.finish_reason, COLIBRI_FINISH_LENGTH);
    EXPECT_EQ(result.text_size, 1U) << "there is no tokenizer";
  }
}

TEST_F(Text, DrawsBySeed) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  const CSession session(model);
  CRequest request(prompt());
  request.max_tokens = 12;
  request.temperature = 0.9F;
  request.top_p = 0.95F;
  request.top_k = 40;
  request.seed = 7;
  request.ignore_eos = 1;
  Request same = generate_request(prompt(), 12);
  same.temperature = 0.9F;
  same.top_p = 0.95F;
  same.top_k = 40;
  same.seed = 7;
  same.ignore_eos = true;
  CResult result;
  ASSERT_EQ(colibri_generate(session, &request, &result, nullptr), COLIBRI_OK);
  EXPECT_EQ(result.generated(), expected(same).tokens);
  request.seed = 8;
  CResult other;
  ASSERT_EQ(colibri_generate(session, &request, &other, nullptr), COLIBRI_OK);
  EXPECT_NE(other.generated(), result.generated());
}

TEST_F(Text, ScoresAndEmbeds) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  const CSession session(model);
  CRequest request(prompt());
  CResult scores;
  ASSERT_EQ(colibri_score(session, &request, &scores, nullptr), COLIBRI_OK);
  EXPECT_EQ(scores.logs(), expected(score_request(prompt())).prompt_logprobs);
  for (const std::int32_t normalize : {0, 1}) {
    for (const std::int32_t pooling : {COLIBRI_POOLING_MEAN, COLIBRI_POOLING_LAST}) {
      request.pooling = pooling;
      request.normalize = normalize;
      Request same = score_request(prompt());
      same.task = Task::embed;
      same.pooling = pooling == COLIBRI_POOLING_LAST ? Pooling::last : Pooling::mean;
      same.normalize = normalize != 0;
      CResult states;
      ASSERT_EQ(colibri_embed(session, &request, &states, nullptr), COLIBRI_OK);
      EXPECT_EQ(states.embedded(), expected(same).embedding);
      if (normalize == 0) continue;
      double square = 0;
      for (const float value : states.embedded()) square += double{value} * value;
      EXPECT_NEAR(square, 1, 1e-4);
    }
  }
}

TEST_F(Text, OfATokenizerComesInPieces) {
  const CModel model(demo(), COLIBRI_PURPOSE_TEXT);
  EXPECT_EQ(spec_of(model).has_tokenizer, 1U);
  const CSession session(model);
  CRequest request;
  request.text = "In the beginning";
  request.max_tokens = 12;
  std::string text;
  const auto add = [](void* user, const char* piece, std::uint64_t size) {
    static_cast<std::string*>(user)->append(piece, size);
  };
  colibri_call* call = nullptr;
  CError error;
  ASSERT_EQ(colibri_session_submit(session, &request, add, nullptr, &text, &call, &error), COLIBRI_OK)
      << error.message;
  ASSERT_EQ(colibri_call_wait(call, -1, &error), COLIBRI_OK) << error.message;
  CResult result;
  ASSERT_EQ(colibri_call_result(call, &result, &error), COLIBRI_OK) << error.message;
  EXPECT_EQ(text, result.text);
  EXPECT_EQ(result.text_size, text.size() + 1);
  EXPECT_EQ(result.tokens_size, 12U);
  EXPECT_FALSE(text.empty());

  // A small buffer gets what fits, whole characters, and the size; the answer stays.
  char small[5] = "????";
  colibri_result little{};
  colibri_result_init(&little, sizeof little);
  little.text = small;
  little.text_capacity = sizeof small;
  EXPECT_EQ(colibri_call_result(call, &little, &error), COLIBRI_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(little.text_size, text.size() + 1);
  EXPECT_EQ(text.substr(0, std::string(small).size()), small);
  EXPECT_EQ(colibri_call_release(call, &error), COLIBRI_OK);

  // A text that ends the answer is not part of it.
  const std::string stop = text.substr(text.size() / 2, 3);
  const char* stops[] = {stop.c_str()};
  request.stop = stops;
  request.num_stop = 1;
  CResult stopped;
  ASSERT_EQ(colibri_generate(session, &request, &stopped, &error), COLIBRI_OK) << error.message;
  EXPECT_EQ(std::string(stopped.text), text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped.finish_reason, COLIBRI_FINISH_STOP);
}

TEST_F(Text, ManySessionsShareStepsAndChangeNothing) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  const auto cases = golden_cases("olmoe");
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const CSession session(model);
      const GoldenCase& one = cases[static_cast<std::size_t>(i) % cases.size()];
      CRequest request(one.prompt);
      request.max_tokens = static_cast<std::uint32_t>(one.greedy.size());
      request.ignore_eos = 1;
      for (int round = 0; round < 3; ++round) {
        CResult result;
        EXPECT_EQ(colibri_generate(session, &request, &result, nullptr), COLIBRI_OK);
        EXPECT_EQ(result.generated(), one.greedy);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct DoneCount {
  std::atomic<int> calls = 0;
  std::atomic<colibri_code> code = COLIBRI_PENDING;
  static void done(void* user, colibri_code code) {
    auto& count = *static_cast<DoneCount*>(user);
    count.code = code;
    ++count.calls;
  }
};

TEST_F(Text, ACallIsCancelledReleasedAndTimesOut) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  const CSession session(model);
  const std::uint32_t long_answer = spec_of(model).max_seq_len - static_cast<std::uint32_t>(prompt().size());
  CRequest request(prompt());
  request.max_tokens = long_answer;
  request.ignore_eos = 1;
  DoneCount count;
  colibri_call* call = nullptr;
  CError error;
  ASSERT_EQ(colibri_session_submit(session, &request, nullptr, DoneCount::done, &count, &call, &error),
            COLIBRI_OK);
  CResult result;
  EXPECT_EQ(colibri_call_wait(call, 0, &error), COLIBRI_PENDING);
  EXPECT_EQ(colibri_call_result(call, &result, &error), COLIBRI_PENDING);
  EXPECT_EQ(colibri_session_destroy(session, &error), COLIBRI_ERROR_BUSY);
  EXPECT_NE(std::string(error.message).find("release them first"), std::string::npos);
  EXPECT_EQ(colibri_model_destroy(model, &error), COLIBRI_ERROR_BUSY);
  EXPECT_EQ(colibri_call_cancel(call, &error), COLIBRI_OK);
  EXPECT_EQ(colibri_call_wait(call, -1, &error), COLIBRI_ERROR_CANCELLED);
  EXPECT_EQ(error.code, COLIBRI_ERROR_CANCELLED);
  EXPECT_NE(error.message[0], '\0');
  EXPECT_EQ(count.calls, 1);
  EXPECT_EQ(count.code, COLIBRI_ERROR_CANCELLED);
  EXPECT_EQ(colibri_call_result(call, &result, &error), COLIBRI_ERROR_CANCELLED);
  EXPECT_LT(result.tokens_size, long_answer);
  EXPECT_EQ(result.finish_reason, COLIBRI_FINISH_ERROR);
  EXPECT_EQ(colibri_call_release(call, &error), COLIBRI_OK);

  // Released before its end: ended, told of, freed.
  DoneCount released;
  ASSERT_EQ(colibri_session_submit(session, &request, nullptr, DoneCount::done, &released, &call, &error),
            COLIBRI_OK);
  EXPECT_EQ(colibri_call_release(call, &error), COLIBRI_OK);
  EXPECT_EQ(released.calls, 1);
}

TEST_F(Text, ARequestThatNeverFitsIsItsOwnError) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  const CSession session(model);
  CRequest request(prompt());
  request.max_tokens = spec_of(model).max_seq_len;
  CResult result;
  CError error;
  EXPECT_EQ(colibri_generate(session, &request, &result, &error), COLIBRI_ERROR_INVALID_INPUT)
      << error.message;
  EXPECT_NE(std::string(error.message).find("max_tokens"), std::string::npos) << error.message;
  request.max_tokens = 2;
  EXPECT_EQ(colibri_generate(session, &request, &result, &error), COLIBRI_OK) << error.message;
}

}  // namespace
}  // namespace colibri::testing
