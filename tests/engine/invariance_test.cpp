// Tokens and log-probabilities of a request do not change by a bit, whatever the cache size, the batch, the
// waves, the threads, the prefetch and the reads; and every record is read once a visit in all of these.
#include <gtest/gtest.h>

#include <bit>

#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

struct Case {
  std::string name;
  Settings settings;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  auto add = [&all](std::string name, Settings settings) { all.push_back({std::move(name), std::move(settings)}); };
  for (const char* experts : {"100%", "50%", "25%", "min"}) {
    for (const char* threads : {"1", "2"}) {
      for (const char* wave_rows : {"1", "7", "64"}) {
        std::string name = std::string("experts_") + (experts[0] == 'm' ? "min" : std::to_string(std::atoi(experts))) +
                           "_threads_" + threads + "_wave_" + wave_rows;
        add(name, {{"memory.experts", experts}, {"threads", threads}, {"steps.wave_rows", wave_rows}});
      }
    }
    const std::string suffix = experts[0] == 'm' ? "min" : std::to_string(std::atoi(experts));
    for (const char* backend : {"io_uring", "pread"}) {
      for (const char* hints : {"true", "false"}) {
        add("experts_" + suffix + "_" + backend + "_hints_" + hints,
            {{"memory.experts", experts}, {"stages.fetch.backend", backend}, {"stages.fetch.hints", hints}, {"steps.wave_rows", "7"}});
      }
    }
    add("experts_" + suffix + "_buffered", {{"memory.experts", experts}, {"stages.fetch.direct", "off"}});
    add("experts_" + suffix + "_one_lane_small_reads",
        {{"memory.experts", experts}, {"stages.fetch.lanes", "1"}, {"stages.fetch.read_bytes", "4KiB"}});
    add("experts_" + suffix + "_no_predictor", {{"memory.experts", experts}, {"stages.predict.method", "none"}});
    add("experts_" + suffix + "_copied", {{"memory.experts", experts}, {"stages.transfer.mode", "copy"}, {"stages.transfer.staging", "1"}});
    add("experts_" + suffix + "_two_steps", {{"memory.experts", experts}, {"steps.in_flight", "2"}, {"steps.max_rows", "24"}});
    add("experts_" + suffix + "_small_steps", {{"memory.experts", experts}, {"steps.max_rows", "5"}, {"steps.wave_rows", "2"}});
  }
  return all;
}

// What must be equal, as bits.
struct Answer {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint32_t> values;
  friend bool operator==(const Answer&, const Answer&) = default;
};

void append(Answer& answer, const std::vector<float>& values) {
  for (const float value : values) answer.values.push_back(std::bit_cast<std::uint32_t>(value));
}

Answer answer_of(const RequestResult& result) {
  EXPECT_TRUE(result.error.is_ok()) << result.error.to_string();
  Answer answer;
  answer.tokens = result.tokens;
  append(answer, result.prompt_logprobs);
  append(answer, result.embedding);
  for (const TokenLogprob& one : result.logprobs) {
    append(answer, {one.logprob});
    for (const auto& [token, logprob] : one.top) {
      answer.tokens.push_back(token);
      append(answer, {logprob});
    }
  }
  return answer;
}

// 32 requests of all kinds over the prompts of a golden.
std::vector<Request> mixed_requests(const std::string& model) {
  std::vector<Request> requests;
  const std::vector<GoldenCase> golden = golden_cases(model);
  for (std::size_t i = 0; requests.size() < 32; ++i) {
    const GoldenCase& one = golden[i % golden.size()];
    if (i % 5 == 4) {
      requests.push_back(score_request(one.prompt));
      continue;
    }
    if (i % 7 == 6) {
      requests.push_back(score_request(one.prompt));
      requests.back().task = Task::embed;
      continue;
    }
    requests.push_back(generate_request(one.prompt, 8 + static_cast<std::uint32_t>(i % 3) * 8));
    Request& request = requests.back();
    request.logprobs = 3;
    request.logprobs_given = true;
    request.ignore_eos = true;
    if (i % 2 == 1) {
      request.temperature = 0.9F;
      request.top_p = 0.95F;
      request.seed = i;
    }
  }
  return requests;
}

std::vector<Answer> answers(Engine& engine, std::vector<Request> requests, RunReport* report = nullptr) {
  const JobRun run = run_job(engine, std::move(requests));
  if (report != nullptr) *report = run.report;
  std::vector<Answer> all;
  for (const RequestResult& result : run.results) all.push_back(answer_of(result));
  return all;
}

// A few settings for one model in one precision.
void expect_invariance(const std::string& model, const std::string& weights) {
  SCOPED_TRACE(model + " " + weights);
  const auto container = golden_container(model, "config.json", weights);
  std::vector<Answer> expected;
  for (const char* experts : {"100%", "50%", "25%", "min"}) {
    for (const Settings& more : {Settings{{"threads", "1"}, {"steps.wave_rows", "64"}},
                                 Settings{{"threads", "2"}, {"steps.wave_rows", "7"}, {"stages.fetch.backend", "pread"}},
                                 Settings{{"threads", "2"}, {"steps.wave_rows", "1"}, {"stages.fetch.hints", "false"}}}) {
      Settings settings = more;
      settings.emplace_back("memory.experts", experts);
      const auto engine = open_engine(container, settings);
      ASSERT_NE(engine, nullptr);
      RunReport report;
      const std::vector<Answer> found = answers(*engine, mixed_requests(model), &report);
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected) << experts;
      EXPECT_EQ(report.bytes_read, report.distinct_bytes) << experts;
    }
  }
}

// What differs between families must not break the promise either.
class InvarianceOfModels : public ::testing::TestWithParam<std::string> {};

TEST_P(InvarianceOfModels, AnswersAreEqualToTheBit) { expect_invariance(GetParam(), "auto"); }

INSTANTIATE_TEST_SUITE_P(Goldens, InvarianceOfModels, ::testing::ValuesIn(golden_names()),
                         [](const auto& info) { return info.param; });

constexpr const char* kModel = "qwen2_moe";  // shared expert, a dense layer, biases

TEST(InvarianceOfPrecisions, AnswersAreEqualToTheBit) {
  for (const char* weights : {"int8", "int4"}) expect_invariance(kModel, weights);
}

class Invariance : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    const auto engine = open_engine(golden_container(kModel, "config.json", "auto"), {{"memory.experts", "100%"}});
    expected_ = new std::vector<Answer>(answers(*engine, mixed_requests(kModel)));
  }
  static void TearDownTestSuite() { delete expected_; }
  static std::vector<Answer>* expected_;
};
std::vector<Answer>* Invariance::expected_ = nullptr;

TEST_P(Invariance, AnswersAreEqualToTheBit) {
  const auto engine = open_engine(golden_container(kModel, "config.json", "auto"), GetParam().settings);
  ASSERT_NE(engine, nullptr);
  RunReport report;
  const std::vector<Answer> found = answers(*engine, mixed_requests(kModel), &report);
  ASSERT_EQ(found.size(), expected_->size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], (*expected_)[i]) << "request " << i;
  EXPECT_EQ(report.bytes_read, report.distinct_bytes);
  EXPECT_GT(report.bytes_read, 0U);
  EXPECT_GT(report.demands, 0U);
}

INSTANTIATE_TEST_SUITE_P(Settings, Invariance, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(InvarianceOfBatches, AloneEqualsTogether) {
  const auto engine = open_engine(golden_container(kModel, "config.json", "auto"), {{"memory.experts", "25%"}});
  ASSERT_NE(engine, nullptr);
  const std::vector<Request> requests = mixed_requests(kModel);
  const std::vector<Answer> together = answers(*engine, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers(*engine, {requests[i]}).at(0), together[i]) << "request " << i;
  }
}

TEST(InvarianceOfBatches, ReverseOrderOfArrival) {
  const auto engine = open_engine(golden_container(kModel, "config.json", "auto"), {{"memory.experts", "25%"}});
  ASSERT_NE(engine, nullptr);
  std::vector<Request> requests = mixed_requests(kModel);
  std::vector<Answer> forward = answers(*engine, requests);
  std::reverse(requests.begin(), requests.end());
  std::vector<Answer> backward = answers(*engine, requests);
  std::reverse(backward.begin(), backward.end());
  EXPECT_EQ(forward, backward);
}

// A KV pool with room for little more than the longest request: requests run nearly one by one.
TEST(InvarianceOfBatches, TinyKvPool) {
  const auto container = golden_container(kModel, "config.json", "auto");
  const auto roomy = open_engine(container, {{"memory.experts", "50%"}});
  const std::vector<Answer> expected = answers(*roomy, mixed_requests(kModel));
  std::size_t longest = 0;
  for (const Request& request : mixed_requests(kModel)) longest = std::max(longest, request.tokens.size() + request.max_tokens);
  const MemoryPlan& plan = roomy->plan();
  const std::uint64_t pages = (longest * 11 / 10 + 15) / 16;
  const std::uint64_t fixed = plan.lines.empty() ? 0 : [&plan] {
    std::uint64_t bytes = 0;
    for (const PlanLine& line : plan.lines) {
      if (line.pool == "dynamic" && line.what.rfind("KV", 0) != 0) bytes += line.bytes;
    }
    return bytes;
  }();
  const auto tight = open_engine(container, {{"memory.experts", "50%"}, {"memory.dynamic", std::to_string(fixed + pages * plan.kv_page_bytes)}});
  ASSERT_NE(tight, nullptr);
  EXPECT_EQ(tight->plan().kv_pages, pages);
  EXPECT_EQ(answers(*tight, mixed_requests(kModel)), expected);
}

// Keys and values in bf16 are another model, but one that is just as invariant: generating a text and scoring it
// give the same log-probabilities.
TEST(InvarianceOfTasks, ScoreEqualsGenerate) {
  const auto container = golden_container(kModel, "config.json", "auto");
  std::vector<std::vector<float>> logprobs;
  for (const char* kv_type : {"f32", "bf16"}) {
    const auto engine = open_engine(container, {{"memory.experts", "50%"}, {"stages.attend.kv_type", kv_type}});
    ASSERT_NE(engine, nullptr);
    const GoldenCase one = golden_cases(kModel).at(2);
    Request generate = generate_request(one.prompt, 16);
    generate.logprobs = 1;
    generate.logprobs_given = true;
    generate.ignore_eos = true;
    const RequestResult generated = run_job(*engine, {generate}).results[0];
    std::vector<std::int32_t> whole = one.prompt;
    whole.insert(whole.end(), generated.tokens.begin(), generated.tokens.end());
    const RequestResult scored = run_job(*engine, {score_request(whole)}).results[0];
    ASSERT_EQ(generated.logprobs.size(), 16U);
    std::vector<float> values;
    for (std::size_t i = 0; i < generated.logprobs.size(); ++i) {
      values.push_back(generated.logprobs[i].logprob);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(generated.logprobs[i].logprob),
                std::bit_cast<std::uint32_t>(scored.prompt_logprobs[one.prompt.size() - 1 + i]))
          << kv_type << " token " << i;
    }
    logprobs.push_back(values);
  }
  EXPECT_NE(logprobs[0], logprobs[1]) << "kv_type changed nothing";
}

// All instruction sets follow one order of accumulation, so even they agree.
TEST(InvarianceOfKernels, AllInstructionSets) {
  for (const char* weights : {"auto", "int8", "int4"}) {
    const auto container = golden_container(kModel, "config.json", weights);
    std::vector<Answer> expected;
    for (const kernels::KernelTable* table : kernels::all_kernel_tables()) {
      if (!table->supported()) continue;
      const auto engine = open_engine(container, {{"memory.experts", "50%"}}, std::string(table->name));
      ASSERT_NE(engine, nullptr);
      const std::vector<Answer> found = answers(*engine, mixed_requests(kModel));
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected) << table->name << " " << weights;
    }
  }
}

}  // namespace
}  // namespace colibri::testing
