// colibri_batch_run against the goldens; stopping, going on, and what it refuses.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/c_api/c_model.hpp"
#include "tests/checkpoint/temporary_folder.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

using Json = nlohmann::json;

class BatchFile : public ::testing::Test {
 protected:
  void SetUp() override {
    container_ = golden_container("olmoe", "config.json", "auto");
    cases_ = golden_cases("olmoe");
    input_ = (folder_.path() / "in.jsonl").string();
    output_ = (folder_.path() / "out.jsonl").string();
    colibri_batch_options_init(&options_, sizeof options_);
    options_.input = input_.c_str();
    options_.output = output_.c_str();
    report_.struct_size = sizeof report_;
  }

  void write_requests(int lines) {
    std::ofstream file(input_);
    for (int i = 0; i < lines; ++i) {
      const GoldenCase& one = cases_[static_cast<std::size_t>(i) % cases_.size()];
      file << Json{{"id", std::to_string(i)},
                   {"tokens", one.prompt},
                   {"max_tokens", one.greedy.size()},
                   {"ignore_eos", true}}
                  .dump()
           << "\n";
    }
  }
  std::map<int, Json> results() const {
    std::map<int, Json> all;
    std::ifstream file(output_);
    for (std::string line; std::getline(file, line);) {
      const Json json = Json::parse(line);
      EXPECT_TRUE(all.emplace(json["index"].get<int>(), json).second) << "answered twice: " << line;
    }
    return all;
  }
  void expect_golden(const std::map<int, Json>& results) const {
    for (const auto& [index, json] : results) {
      const GoldenCase& one = cases_[static_cast<std::size_t>(index) % cases_.size()];
      EXPECT_EQ(json["tokens"].get<std::vector<std::int32_t>>(), one.greedy) << json.dump();
    }
  }

  test::TemporaryFolder folder_;
  std::filesystem::path container_;
  std::vector<GoldenCase> cases_;
  std::string input_, output_;
  colibri_batch_options options_{};
  colibri_batch_report report_{};
};

TEST_F(BatchFile, AnswersEveryLine) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  write_requests(9);
  std::ofstream(input_, std::ios::app) << "{\"id\": \"bad\", \"tokens\": [1], \"max_tokens\": -1}\n";
  options_.in_order = 1;
  CError error;
  ASSERT_EQ(colibri_batch_run(model, &options_, &report_, &error), COLIBRI_OK) << error.message;
  const auto all = results();
  ASSERT_EQ(all.size(), 10U);
  EXPECT_EQ(all.at(9)["finish_reason"], "error");
  auto good = all;
  good.erase(9);
  expect_golden(good);
  EXPECT_EQ(report_.requests, 10U);
  EXPECT_EQ(report_.failed, 1U);
  std::uint64_t generated = 0;
  for (const auto& [index, json] : good) generated += json["tokens"].size();
  EXPECT_EQ(report_.generated_tokens, generated);
  EXPECT_GT(report_.wall_seconds, 0);

  // The model serves sessions afterwards.
  const CSession session(model);
  CRequest request(cases_[0].prompt);
  request.max_tokens = static_cast<std::uint32_t>(cases_[0].greedy.size());
  request.ignore_eos = 1;
  CResult result;
  ASSERT_EQ(colibri_generate(session, &request, &result, &error), COLIBRI_OK) << error.message;
  EXPECT_EQ(result.generated(), cases_[0].greedy);
  EXPECT_EQ(colibri_batch_run(model, &options_, &report_, &error), COLIBRI_ERROR_BUSY);
}

TEST_F(BatchFile, StopsAndGoesOn) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT,
                     {"memory.experts=50%", "steps.max_rows=16", "stages.admit.waiting=1"});
  write_requests(600);
  options_.progress = [](void*, const colibri_batch_report* so_far) { return so_far->requests > 0 ? 1 : 0; };
  CError error;
  ASSERT_EQ(colibri_batch_run(model, &options_, &report_, &error), COLIBRI_ERROR_CANCELLED) << error.message;
  EXPECT_GT(report_.requests, 0U);
  EXPECT_LT(report_.requests, 600U);
  const auto first = results();
  EXPECT_EQ(first.size(), report_.requests);
  expect_golden(first);
  // Neither over it by accident, nor with another input.
  options_.progress = nullptr;
  EXPECT_EQ(colibri_batch_run(model, &options_, &report_, &error), COLIBRI_ERROR_INVALID_INPUT);
  options_.resume = 1;
  ASSERT_EQ(colibri_batch_run(model, &options_, &report_, &error), COLIBRI_OK) << error.message;
  EXPECT_EQ(report_.requests, 600U);
  EXPECT_EQ(report_.failed, 0U);
  const auto all = results();
  EXPECT_EQ(all.size(), 600U);
  expect_golden(all);
}

TEST_F(BatchFile, RefusesWhatItCannotDo) {
  const CModel model(container_, COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  CError error;
  EXPECT_EQ(colibri_batch_run(model, &options_, &report_, &error), COLIBRI_ERROR_NOT_FOUND) << error.message;
  EXPECT_FALSE(std::filesystem::exists(output_));
  std::ofstream(input_) << "{\"id\": \"a\", \"tokens\": [1]}\n{\"id\": \"a\", \"tokens\": [2]}\n";
  EXPECT_EQ(colibri_batch_run(model, &options_, &report_, &error), COLIBRI_ERROR_INVALID_INPUT);
  EXPECT_NE(std::string(error.message).find("id"), std::string::npos) << error.message;
  write_requests(1);
  options_.output = "/dev/full";
  EXPECT_EQ(colibri_batch_run(model, &options_, &report_, &error), COLIBRI_ERROR_INVALID_INPUT)
      << error.message;
  options_.output = output_.c_str();
  options_.input = "/dev/null";
  EXPECT_EQ(colibri_batch_run(model, &options_, &report_, &error), COLIBRI_ERROR_INVALID_INPUT)
      << error.message;
  // It is usable all the same.
  options_.input = input_.c_str();
  EXPECT_EQ(colibri_batch_run(model, &options_, &report_, &error), COLIBRI_OK) << error.message;
  expect_golden(results());
}

}  // namespace
}  // namespace colibri::testing
