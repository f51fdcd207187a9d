#include "tests/support/small_job.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <utility>

namespace colibri::testing {

std::vector<Request> small_requests(const std::string& model, std::size_t count) {
  std::vector<Request> all;
  const std::vector<GoldenCase> golden = golden_cases(model);
  for (std::size_t i = 0; i < count; ++i) {
    const GoldenCase& one = golden[i % golden.size()];
    if (i % 5 == 2) {
      all.push_back(score_request(one.prompt));
    } else if (i % 5 == 4) {
      all.push_back(score_request(one.prompt));
      all.back().task = Task::embed;
    } else {
      all.push_back(generate_request(one.prompt, 3));
      all.back().logprobs = 2;
      all.back().logprobs_given = true;
      all.back().ignore_eos = true;
    }
  }
  return all;
}

std::vector<std::vector<std::uint32_t>> result_bits(const JobRun& run) {
  std::vector<std::vector<std::uint32_t>> all;
  for (const RequestResult& result : run.results) {
    EXPECT_TRUE(result.error.is_ok()) << result.error.to_string();
    std::vector<std::uint32_t> one(result.tokens.begin(), result.tokens.end());
    auto append = [&one](float value) { one.push_back(std::bit_cast<std::uint32_t>(value)); };
    for (const float value : result.prompt_logprobs) append(value);
    for (const float value : result.embedding) append(value);
    for (const TokenLogprob& token : result.logprobs) {
      append(token.logprob);
      for (const auto& [other, logprob] : token.top) {
        one.push_back(static_cast<std::uint32_t>(other));
        append(logprob);
      }
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace colibri::testing
