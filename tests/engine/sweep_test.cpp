// Jobs that only score or embed: all rows in one step when memory allows, so that each record is read once
// for the whole job, with keys and values of one layer at a time; and the same bits as in small steps.
#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <random>
#include <set>

#include "io/read/virtual_device.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/test_scale.hpp"
#include "tests/support/watchdog.hpp"

namespace colibri::testing {
namespace {

constexpr std::uint32_t kPrompts = 60;

// Which records the picks name.
class Touched final : public TraceRecorder {
 public:
  bool wants_values() const override { return false; }
  bool wants_routing() const override { return true; }
  void values(std::string_view, std::uint32_t, const Sequence&, std::uint32_t,
              std::span<const float>) override {}
  void routing(std::uint64_t, std::uint64_t, const Sequence&, std::uint32_t, std::uint32_t layer,
               std::span<const std::uint32_t> experts, std::span<const float>) override {
    for (const std::uint32_t expert : experts) records.emplace(layer, expert);  // route alone calls it
  }
  std::set<std::pair<std::uint32_t, std::uint32_t>> records;
};

std::vector<Request> prompts(const ModelSpec& spec) {
  std::mt19937 random(3);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < kPrompts; ++i) {
    std::vector<std::int32_t> tokens(2 + random() % 60);
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % spec.vocab_size);
    requests.push_back(score_request(tokens));
    if (i % 3 == 0) requests.back().task = Task::embed;
  }
  return requests;
}

std::uint64_t rows_of(const std::vector<Request>& requests) {
  std::uint64_t rows = 0;
  for (const Request& request : requests) rows += request.tokens.size();
  return rows;
}

std::vector<std::uint32_t> bits_of(const RequestResult& result) {
  EXPECT_TRUE(result.error.is_ok()) << result.error.to_string();
  std::vector<std::uint32_t> bits;
  for (const float value : result.prompt_logprobs) bits.push_back(std::bit_cast<std::uint32_t>(value));
  for (const float value : result.embedding) bits.push_back(std::bit_cast<std::uint32_t>(value));
  EXPECT_FALSE(bits.empty());
  return bits;
}

const StageReport* stage_of(const RunReport& report, const std::string& name) {
  for (const StageReport& stage : report.stages) {
    if (stage.name == name) return &stage;
  }
  return nullptr;
}

// One with dense layers between its MoE layers, one without.
class Sweep : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Engine> open(std::vector<std::pair<std::string, std::string>> settings, bool known) const {
    settings.emplace_back("memory.dynamic", "auto");
    EngineOptions options;
    if (known) {
      options.workload = [](const Container& container, const Tokenizer*) -> Result<Workload> {
        return Workload{.prompts = kPrompts, .rows = rows_of(prompts(container.spec())), .longest_rows = 61};
      };
    }
    auto engine = Engine::open(container_, pipeline_with(settings), std::move(options));
    if (!engine) ADD_FAILURE() << engine.status().to_string();
    return engine ? std::move(engine).value() : nullptr;
  }
  const std::filesystem::path container_ = golden_container(GetParam(), "config.json", "auto");
};

// Steps come back before their results, or several are computed at a time while others wait for the drive.
TEST_P(Sweep, SmallStepsGiveTheSameBitsInAnyOrder) {
  const auto seeds = static_cast<std::uint32_t>(scaled(12, 4));
  std::vector<std::vector<std::uint32_t>> expected;
  for (const char* in_flight : {"1", "2", "3"}) {
    const auto engine = open({{"memory.experts", "25%"},
                              {"steps.max_rows", "24"},
                              {"steps.wave_rows", "5"},
                              {"steps.in_flight", in_flight}},
                             false);
    ASSERT_NE(engine, nullptr);
    for (std::uint32_t seed = 0; seed < seeds; ++seed) {
      SCOPED_TRACE(std::string(in_flight) + " in flight, seed " + std::to_string(seed));
      const auto device = std::make_shared<VirtualDevice>(
          std::vector<DeviceLaw>{{.bytes_per_second = 200'000'000, .channels = 1 + seed % 4}});
      StepScheduler scheduler(seed, [&] { return device->advance(); });
      const Watchdog watchdog("a job of small steps");
      const JobRun run =
          run_job(*engine, prompts(engine->spec()), {.stepped = &scheduler, .virtual_device = device});
      ASSERT_EQ(run.results.size(), kPrompts);
      std::vector<std::vector<std::uint32_t>> bits;
      for (const RequestResult& result : run.results) bits.push_back(bits_of(result));
      if (expected.empty()) expected = bits;
      EXPECT_EQ(bits, expected);
    }
  }
}

TEST_P(Sweep, ReadsEachRecordOnceForTheWholeJob) {
  for (const char* memory : {"min", "50%"}) {
    const auto engine = open({{"memory.experts", memory}, {"steps.wave_rows", "16"}}, true);
    ASSERT_NE(engine, nullptr);
    const std::vector<Request> requests = prompts(engine->spec());
    ASSERT_GT(rows_of(requests), 1024U) << "more than one step of default size";
    Touched touched;
    const JobRun run = run_job(*engine, requests, {.trace = &touched});
    const StageReport* admit = stage_of(run.report, "admit");
    const StageReport* fetch = stage_of(run.report, "fetch");
    ASSERT_TRUE(admit != nullptr && fetch != nullptr);
    EXPECT_EQ(admit->metric("steps_total"), 1U);
    EXPECT_EQ(admit->metric("prompt_rows_total"), rows_of(requests));
    EXPECT_EQ(fetch->metric("demands_total"), touched.records.size());
    EXPECT_EQ(fetch->metric("reads_total") * engine->plan().slot_bytes, run.report.bytes_read);
    // What was read ahead is read once too: an expert that nobody picked may be among it.
    EXPECT_GE(fetch->metric("reads_total"), touched.records.size());
    EXPECT_EQ(
        fetch->metric("reads_total") * engine->plan().slot_bytes - fetch->metric("wasted_hint_bytes_total"),
        touched.records.size() * engine->plan().slot_bytes);
  }
}

TEST_P(Sweep, AnswersAreThoseOfSmallSteps) {
  const auto whole = open({{"memory.experts", "25%"}}, true);
  const auto cut =
      open({{"memory.experts", "25%"}, {"steps.max_rows", "29"}, {"steps.wave_rows", "8"}}, false);
  ASSERT_TRUE(whole != nullptr && cut != nullptr);
  // Steps smaller than most prompts: these have pages of their own. With more rows some fit and some do not.
  const auto mixed =
      open({{"memory.experts", "25%"}, {"steps.max_rows", "70"}, {"steps.in_flight", "2"}}, false);
  ASSERT_NE(mixed, nullptr);
  const std::vector<Request> requests = prompts(whole->spec());
  const JobRun expected = run_job(*cut, requests);
  for (Engine* engine : {whole.get(), mixed.get()}) {
    const JobRun run = run_job(*engine, requests);
    for (std::uint32_t i = 0; i < kPrompts; ++i)
      EXPECT_EQ(bits_of(run.results[i]), bits_of(expected.results[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Sweep, ::testing::Values("olmoe", "qwen2_moe_step2"));

}  // namespace
}  // namespace colibri::testing
