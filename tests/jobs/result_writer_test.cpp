// Result lines: exact shapes, read back with an independent JSON parser.
#include "io/text/result_writer.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace colibri {
namespace {

using Json = nlohmann::ordered_json;

RequestResult base_result() {
  RequestResult result;
  result.index = 4;
  result.id = "a";
  result.has_text = true;
  result.text = "say \"hi\"\n\x01";
  result.tokens = {5, 6};
  result.prompt_tokens = 3;
  result.finish_reason = FinishReason::length;
  return result;
}

std::string write(const RequestResult& result, ResultWriter::TokenText token_text = {}) {
  std::string out;
  ResultWriter(std::move(token_text)).append(result, out);
  EXPECT_EQ(out.back(), '\n');
  EXPECT_EQ(out.find('\n'), out.size() - 1);
  EXPECT_TRUE(Json::accept(out)) << out;
  out.pop_back();
  return out;
}

TEST(ResultWriter, OwnShape) {
  EXPECT_EQ(write(base_result()),
            R"({"id":"a","index":4,"text":"say \"hi\"\n\u0001","tokens":[5,6],"prompt_tokens":3,)"
            R"("completion_tokens":2,"finish_reason":"length"})");
}

TEST(ResultWriter, NoIdAndNoTextAreNull) {
  RequestResult result = base_result();
  result.id.clear();
  result.has_text = false;
  const Json json = Json::parse(write(result));
  EXPECT_TRUE(json["id"].is_null());
  EXPECT_TRUE(json["text"].is_null());
}

TEST(ResultWriter, ErrorAlwaysFinishesWithError) {
  RequestResult result;
  result.index = 9;
  result.id = "e";
  result.error = Status(ErrorCode::capacity, "too long; shorten it");
  EXPECT_EQ(write(result),
            R"({"id":"e","index":9,"text":null,"tokens":[],"prompt_tokens":0,"completion_tokens":0,)"
            R"("finish_reason":"error","error":{"code":"capacity","message":"too long; shorten it"}})");
}

TEST(ResultWriter, LogprobsScoresAndEmbeddings) {
  RequestResult result = base_result();
  result.text = "x";
  result.logprobs_given = true;
  result.logprobs = {{5, -0.5F, {{5, -0.5F}, {8, -1.25F}}}, {6, -std::numeric_limits<float>::infinity(), {}}};
  EXPECT_EQ(Json::parse(write(result))["logprobs"].dump(),
            R"([{"token":5,"logprob":-0.5,"top":[[5,-0.5],[8,-1.25]]},{"token":6,"logprob":null,"top":[]}])");

  RequestResult score = base_result();
  score.task = Task::score;
  score.prompt_logprobs = {-1.5F, std::nanf("")};
  EXPECT_EQ(Json::parse(write(score))["prompt_logprobs"].dump(), "[-1.5,null]");

  RequestResult embed = base_result();
  embed.task = Task::embed;
  embed.embedding = {0.0F, -0.0F, 1e-30F};
  EXPECT_EQ(Json::parse(write(embed))["embedding"].size(), 3U);
  embed.error = Status(ErrorCode::io, "x");
  EXPECT_FALSE(Json::parse(write(embed)).contains("embedding"));
}

TEST(ResultWriter, KeysStandInTheFixedOrder) {
  RequestResult result = base_result();
  result.task = Task::score;
  result.logprobs_given = true;
  std::vector<std::string> keys;
  const Json json = Json::parse(write(result));
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"id", "index", "text", "tokens", "prompt_tokens", "completion_tokens",
                                      "finish_reason", "logprobs", "prompt_logprobs"}));
}

TEST(ResultWriter, FloatsReadBackToTheBit) {
  std::uint32_t state = 12345;
  RequestResult result = base_result();
  result.task = Task::embed;
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525U + 1013904223U;
    const auto value = std::bit_cast<float>(state);
    if (std::isfinite(value)) result.embedding.push_back(value);
  }
  result.embedding.push_back(std::numeric_limits<float>::denorm_min());
  result.embedding.push_back(std::numeric_limits<float>::max());
  const Json json = Json::parse(write(result));
  for (std::size_t i = 0; i < result.embedding.size(); ++i) {
    // The nearest double of the printed digits rounds to the same float.
    EXPECT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(json["embedding"][i].get<double>())),
              std::bit_cast<std::uint32_t>(result.embedding[i]));
  }
}

TEST(ResultWriter, EveryByteStringBecomesValidJson) {
  RequestResult result = base_result();
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; second += 5) {
      result.text = std::string("a") + static_cast<char>(first) + static_cast<char>(second) + "z";
      result.id = result.text;
      const Json json = Json::parse(write(result));
      if (first < 128 && second < 128) {
        EXPECT_EQ(json["text"].get<std::string>(), result.text);
      }
    }
  }
  result.text = "caf\xC3\xA9 \xF0\x9F\x98\x80 \xFF";
  EXPECT_EQ(Json::parse(write(result))["text"].get<std::string>(),
            "caf\xC3\xA9 \xF0\x9F\x98\x80 \xEF\xBF\xBD");
}

TEST(ResultWriter, OpenaiShape) {
  RequestResult result = base_result();
  result.openai = true;
  result.model_name = "m";
  result.text = "ok";
  EXPECT_EQ(
      write(result),
      R"({"id":"batch_req_4","custom_id":"a","response":{"status_code":200,"request_id":"req_4","body":)"
      R"({"id":"cmpl-4","object":"text_completion","created":0,"model":"m","choices":[{"index":0,"text":"ok",)"
      R"("finish_reason":"length","logprobs":null}],"usage":{"prompt_tokens":3,"completion_tokens":2,)"
      R"("total_tokens":5}}},"error":null})");
}

TEST(ResultWriter, OpenaiError) {
  RequestResult result = base_result();
  result.openai = true;
  result.error = Status(ErrorCode::unsupported, "no");
  EXPECT_EQ(
      write(result),
      R"({"id":"batch_req_4","custom_id":"a","response":{"status_code":400,"request_id":"req_4","body":)"
      R"({"error":{"message":"no","type":"invalid_request_error","param":null,"code":"unsupported"}}},)"
      R"("error":{"code":"unsupported","message":"no"}})");
  result.error = Status(ErrorCode::io, "drive");
  EXPECT_EQ(Json::parse(write(result))["response"]["status_code"], 500);
}

TEST(ResultWriter, OpenaiLogprobs) {
  RequestResult result = base_result();
  result.openai = true;
  result.text = "h\xC3\xA9";
  result.logprobs_given = true;
  result.logprobs = {{1, -0.5F, {{1, -0.5F}, {2, -1.0F}, {3, -2.0F}}}, {2, -1.5F, {}}, {9, -1.0F, {}}};
  const auto text = [](std::int32_t token) -> std::string {
    return token == 1 ? "h\xC3\xA9" : token == 9 ? "\xC3" : "same";
  };
  EXPECT_EQ(Json::parse(write(result, text))["response"]["body"]["choices"][0]["logprobs"].dump(),
            "{\"tokens\":[\"h\xC3\xA9\",\"same\",\"token_id:9\"],\"token_logprobs\":[-0.5,-1.5,-1.0],"
            "\"top_logprobs\":[{\"h\xC3\xA9\":-0.5,\"same\":-1.0,\"token_id:3\":-2.0},{},{}],\"text_offset\":"
            "[0,2,6]}");
  EXPECT_EQ(Json::parse(write(result))["response"]["body"]["choices"][0]["logprobs"]["tokens"].dump(),
            R"(["token_id:1","token_id:2","token_id:9"])");
}

}  // namespace
}  // namespace colibri
