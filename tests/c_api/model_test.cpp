// Models as a whole: what they are, what they take, prewarming, metrics, and that nothing happens behind the
// host's back.
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <mutex>
#include <regex>
#include <set>

#include "tests/c_api/c_model.hpp"
#include "tests/checkpoint/temporary_folder.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

std::filesystem::path golden(const char* name = "olmoe") {
  return golden_container(name, "config.json", "auto");
}

TEST(Version, IsToldAndEveryCodeHasASentence) {
  EXPECT_EQ(colibri_abi_version(), COLIBRI_ABI_VERSION);
  EXPECT_STRNE(colibri_version(), "");
  std::set<std::string> sentences;
  for (colibri_code code = COLIBRI_OK; code <= COLIBRI_PENDING; ++code)
    EXPECT_TRUE(sentences.insert(colibri_error_string(code)).second) << code;
  EXPECT_STREQ(colibri_error_string(COLIBRI_PENDING + 1), "unknown code");
  EXPECT_STREQ(colibri_error_string(-1), "unknown code");
}

// Against the library's own reading of the same files.
TEST(Spec, IsThatOfTheContainer) {
  for (const char* name : {"mixtral", "olmoe", "qwen2_moe", "qwen3_moe"}) {
    const auto container = Container::open(golden(name)).value();
    const ModelSpec& expected = container->spec();
    colibri_model_spec spec{};
    spec.struct_size = sizeof spec;
    CError error;
    ASSERT_EQ(colibri_model_spec_load(golden(name).c_str(), &spec, &error), COLIBRI_OK) << error.message;
    EXPECT_EQ(spec.num_layers, expected.num_layers());
    EXPECT_EQ(spec.num_moe_layers, expected.num_moe_layers());
    EXPECT_EQ(spec.num_experts, expected.num_experts);
    EXPECT_EQ(spec.num_experts_per_token, expected.num_experts_per_token);
    EXPECT_EQ(spec.hidden_size, expected.hidden_size);
    EXPECT_EQ(spec.vocab_size, expected.vocab_size);
    EXPECT_EQ(spec.max_seq_len, expected.max_seq_len);
    EXPECT_EQ(spec.has_tokenizer, 0U);
    EXPECT_EQ(spec.family, expected.family);
    EXPECT_STREQ(spec.weight_dtype, "bf16");
    EXPECT_EQ(spec.expert_bytes, spec.record_bytes * spec.num_moe_layers * spec.num_experts);
  }
}

TEST(Estimate, IsWhatIsTakenAndSizesAreCheckedAgainstIt) {
  colibri_size_estimate estimate{};
  estimate.struct_size = sizeof estimate;
  CError error;
  const auto path = golden();
  CConfig config(COLIBRI_PURPOSE_TEXT);
  config.expert_slots = 12;
  ASSERT_EQ(colibri_model_size_estimate(path.c_str(), &config, &estimate, &error), COLIBRI_OK)
      << error.message;
  EXPECT_EQ(estimate.expert_slots, 12U);
  // The slots take whole huge pages.
  constexpr std::uint64_t kHugePage = 2 << 20;
  const std::uint64_t slots =
      (estimate.expert_slots * estimate.slot_bytes + kHugePage - 1) / kHugePage * kHugePage;
  EXPECT_EQ(estimate.total_bytes, estimate.static_bytes + estimate.dynamic_bytes + estimate.scratch_bytes +
                                      slots + estimate.process_bytes);
  EXPECT_GT(estimate.worker_slots, 0U);
  EXPECT_GT(estimate.max_positions, 0U);
  // What a pool needs is told, and is enough; one byte less is not.
  const std::pair<const char*, std::uint64_t colibri_config::*> pools[] = {
      {"static", &colibri_config::static_bytes}, {"scratch", &colibri_config::scratch_bytes}};
  for (const auto& [name, field] : pools) {
    config.*field = 1;
    ASSERT_EQ(colibri_model_size_estimate(path.c_str(), &config, &estimate, &error),
              COLIBRI_ERROR_INVALID_INPUT);
    std::cmatch told;
    ASSERT_TRUE(std::regex_search(error.message, told,
                                  std::regex("memory\\.([a-z]+) is too small.*\\(([0-9]+) bytes\\) needed")))
        << error.message;
    EXPECT_EQ(told[1], name);
    const std::uint64_t needed = std::stoull(told[2]);
    if (field == &colibri_config::static_bytes) {
      EXPECT_EQ(needed, Container::open(path).value()->dense_bytes());
    }
    colibri_model* model = nullptr;
    config.*field = needed - 1;
    EXPECT_EQ(colibri_model_create(path.c_str(), &config, &model, &error), COLIBRI_ERROR_INVALID_INPUT);
    EXPECT_EQ(model, nullptr);
    config.*field = needed;
    EXPECT_EQ(colibri_model_size_estimate(path.c_str(), &config, &estimate, &error), COLIBRI_OK)
        << error.message;
    config.*field = 0;
  }
  // All together more than there is: a list of what needs how much.
  CConfig large(COLIBRI_PURPOSE_TEXT, {"memory.dynamic=4096GiB"});
  EXPECT_EQ(colibri_model_size_estimate(path.c_str(), &large, &estimate, &error), COLIBRI_ERROR_CAPACITY);
  for (const char* part : {"the plan does not fit", "dense weights", "KV: ", "program, tables", "usable"})
    EXPECT_NE(std::string(error.message).find(part), std::string::npos) << part << ": " << error.message;
}

// Bytes that this process has read, from wherever.
std::uint64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == "rchar:") return value;
  }
  ADD_FAILURE() << "no rchar in /proc/self/io";
  return 0;
}

// Whatever the size of the experts: they are not read.
TEST(Create, ReadsWhatIsDenseAndNoExperts) {
  const auto path =
      container_of(std::filesystem::path(COLIBRI_TEST_DATA).parent_path() / "configs" / "demo" / "checkpoint",
                   "config.json", "int8");
  const std::uint64_t before = bytes_read();
  const CModel model(path, COLIBRI_PURPOSE_TEXT);
  const std::uint64_t read = bytes_read() - before;
  const colibri_model_spec spec = spec_of(model);
  constexpr std::uint64_t kTablesAndTokenizer = 3 << 20;
  EXPECT_GE(read, spec.dense_bytes);
  EXPECT_LE(read, spec.dense_bytes + kTablesAndTokenizer);
  EXPECT_GT(spec.expert_bytes, 4 * kTablesAndTokenizer) << "would be seen";
  std::uint64_t size = 0;
  std::string text(1 << 17, ' ');
  ASSERT_EQ(colibri_get_metrics(model, text.data(), text.size(), &size, nullptr), COLIBRI_OK);
  EXPECT_NE(text.find("colibri_bytes_read_total 0\n"), std::string::npos);
}

TEST(Prewarm, ReadsWhatEarlierJobsUsed) {
  test::TemporaryFolder state;
  CConfig config(COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  const std::string state_dir = state.path().string();
  config.state_dir = state_dir.c_str();
  std::uint64_t bytes = 99;
  CError error;
  {
    const CModel model(golden(), config);
    ASSERT_EQ(colibri_prewarm(model, &bytes, &error), COLIBRI_OK) << error.message;
    EXPECT_EQ(bytes, 0U) << "nothing was used yet";
    const CSession session(model);
    CRequest request(golden_cases("olmoe").at(2).prompt);
    request.max_tokens = 4;
    CResult result;
    ASSERT_EQ(colibri_generate(session, &request, &result, &error), COLIBRI_OK) << error.message;
  }
  const CModel model(golden(), config);
  ASSERT_EQ(colibri_prewarm(model, &bytes, &error), COLIBRI_OK) << error.message;
  EXPECT_GT(bytes, 0U);
  EXPECT_EQ(bytes % spec_of(model).record_bytes, 0U);
  const std::uint64_t first = bytes;
  ASSERT_EQ(colibri_prewarm(model, &bytes, &error), COLIBRI_OK) << error.message;
  EXPECT_EQ(bytes, first) << "once a job";
}

TEST(Metrics, FitTheBufferThatTheyAskFor) {
  const CModel model(golden(), COLIBRI_PURPOSE_TEXT, {"memory.experts=50%"});
  {
    const CSession session(model);
    CRequest request(golden_cases("olmoe").at(2).prompt);
    request.max_tokens = 4;
    request.ignore_eos = 1;
    CResult result;
    ASSERT_EQ(colibri_generate(session, &request, &result, nullptr), COLIBRI_OK);
  }
  std::uint64_t size = 0;
  CError error;
  ASSERT_EQ(colibri_get_metrics(model, nullptr, 0, &size, &error), COLIBRI_ERROR_BUFFER_TOO_SMALL);
  // Numbers grow longer between two calls.
  std::string text(size + 4096, '?');
  ASSERT_EQ(colibri_get_metrics(model, text.data(), text.size(), &size, &error), COLIBRI_OK) << error.message;
  ASSERT_LE(size, text.size());
  EXPECT_EQ(text[size - 1], '\0');
  EXPECT_EQ(text.find('\0'), size - 1);
  EXPECT_NE(text.find("\ncolibri_generated_tokens_total 4\n"), std::string::npos);
  EXPECT_NE(text.find("# HELP colibri_fetch_reads_total "), std::string::npos);
  text.assign(10, '?');
  EXPECT_EQ(colibri_get_metrics(model, text.data(), text.size(), &size, &error),
            COLIBRI_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(text[9], '\0');
}

TEST(Sanity, OfAGoodModelIsGood) {
  for (const char* name : {"olmoe", "qwen2_moe"}) {
    for (const std::int32_t purpose : {COLIBRI_PURPOSE_TEXT, COLIBRI_PURPOSE_BLOCKS}) {
      const CModel model(golden(name), purpose);
      CError error;
      EXPECT_EQ(colibri_sanity_check(model, &error), COLIBRI_OK) << error.message;
    }
  }
}

// The log is the only way in which a model speaks; signals and oneTBB's limits stay the host's.
TEST(Host, KeepsItsSignalsItsLimitsAndItsStreams) {
  struct Lines {
    std::mutex mutex;
    std::vector<std::string> lines;
  } lines;
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGINT, nullptr, &before), 0);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const std::vector<std::int32_t> expected = golden_cases("olmoe").at(0).greedy;
  {
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, 1);
    CConfig config(COLIBRI_PURPOSE_TEXT, {"threads=3"});
    config.log = [](void* user, const char* line) {
      auto& all = *static_cast<Lines*>(user);
      const std::lock_guard lock(all.mutex);
      all.lines.emplace_back(line);
    };
    config.log_user = &lines;
    const CModel first(golden(), config);
    const CModel second(golden("qwen3_moe"), COLIBRI_PURPOSE_BLOCKS);
    const CSession session(first);
    CRequest request(golden_cases("olmoe").at(0).prompt);
    request.max_tokens = static_cast<std::uint32_t>(expected.size());
    request.ignore_eos = 1;
    CResult result;
    EXPECT_EQ(colibri_generate(session, &request, &result, nullptr), COLIBRI_OK);
    EXPECT_EQ(result.generated(), expected);
    std::atomic<int> sum = 0;
    tbb::parallel_for(0, 1000, [&](int i) { sum += i; });
    EXPECT_EQ(sum, 499500);
    EXPECT_EQ(tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism), 1U);
    {
      colibri_thread_allowance* allowance = nullptr;
      ASSERT_EQ(colibri_thread_allowance_create(5, &allowance, nullptr), COLIBRI_OK);
      EXPECT_EQ(tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism), 1U)
          << "the lowest limit holds";
      EXPECT_EQ(colibri_thread_allowance_destroy(allowance, nullptr), COLIBRI_OK);
    }
  }
  colibri_thread_allowance* allowance = nullptr;
  ASSERT_EQ(colibri_thread_allowance_create(7, &allowance, nullptr), COLIBRI_OK);
  EXPECT_EQ(tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism), 7U);
  EXPECT_EQ(colibri_thread_allowance_destroy(allowance, nullptr), COLIBRI_OK);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  struct sigaction after {};
  ASSERT_EQ(sigaction(SIGINT, nullptr, &after), 0);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
  bool named = false;
  for (const std::string& line : lines.lines)
    named |= line.find("max_allowed_parallelism is 1") != std::string::npos;
  EXPECT_TRUE(named);
}

}  // namespace
}  // namespace colibri::testing
