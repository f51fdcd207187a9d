// Random valid pipelines give the results of the standard one to the bit, on threads and stepped; random
// damage to valid files gives problems, or a pipeline that runs or is refused: never a crash, an exception or
// a hang.
#include "tests/support/random_pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>

#include "runtime/engine/step_scheduler.hpp"
#include "tests/engine/job_source.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/small_job.hpp"
#include "tests/support/watchdog.hpp"
#include "topology/machine.hpp"

namespace colibri::testing {
namespace {

constexpr const char* kModel = "qwen2_moe";  // shared expert, a dense layer between MoE layers

// Hundreds in the quick tests, thousands under the label big.
int rounds(int quick, int big) {
  const bool many = std::getenv("COLIBRI_TEST_BIG") != nullptr;
  return scaled(many ? big : quick, 20);
}

class RandomPipelines : public ::testing::Test {
 protected:
  void SetUp() override {
    container_ = golden_container(kModel, "config.json", "auto");
    const auto machine = read_machine();
    ASSERT_TRUE(machine.is_ok());
    cpus_ = machine.value().cpus;
    cpus_.resize(std::min<std::size_t>(cpus_.size(), 2));
    const auto reference = open_engine(container_);
    ASSERT_NE(reference, nullptr);
    experts_ = reference->spec().num_experts;
    expected_ = result_bits(run_job(*reference, small_requests(kModel, 5)));
  }
  // The spec that the checker accepts, or nothing.
  std::optional<PipelineSpec> accepted(const std::string& yaml, std::string* problems_text = nullptr) const {
    const auto infos = registry_.infos();
    PipelineProblems problems;
    PipelineSpec spec = parse_pipeline(yaml, "random.yaml", infos, {}, problems);
    check_pipeline(spec, infos, problems);
    if (problems_text != nullptr) *problems_text = problems.to_status().to_string();
    if (!problems.to_status()) return std::nullopt;
    return spec;
  }

  const Registry registry_ = builtin_registry();
  std::filesystem::path container_;
  std::vector<std::uint32_t> cpus_;
  std::uint32_t experts_ = 0;
  std::vector<std::vector<std::uint32_t>> expected_;
};

// All waves pass a tap, so each writes every row that is routed; how many taps there are.
int check_taps(const RunReport& report) {
  int taps = 0;
  std::uint64_t routed = 0;
  for (const StageReport& stage : report.stages) {
    if (stage.kind == "route") routed = stage.metric("rows_total");
  }
  for (const StageReport& stage : report.stages) {
    if (stage.kind != "tap") continue;
    ++taps;
    EXPECT_EQ(stage.metric("rows_total"), routed) << stage.name;
  }
  return taps;
}

TEST_F(RandomPipelines, GiveTheResultsOfTheStandardOne) {
  const int count = rounds(150, 2000);
  const std::filesystem::path taps_folder = container_.parent_path() / "taps";
  std::filesystem::create_directories(taps_folder);
  int taps = 0;
  for (int seed = 0; seed < count; ++seed) {
    const std::string yaml =
        random_pipeline(static_cast<std::uint64_t>(seed), cpus_, experts_, taps_folder.string());
    Watchdog watchdog("seed " + std::to_string(seed) + "\n" + yaml);
    std::string problems;
    const auto spec = accepted(yaml, &problems);
    ASSERT_TRUE(spec) << "seed " << seed << "\n" << problems << "\n" << yaml;
    auto engine = Engine::open(container_, *spec, {});
    ASSERT_TRUE(engine.is_ok()) << "seed " << seed << "\n" << engine.status().to_string() << "\n" << yaml;
    watchdog.look_at([&engine] { return engine.value()->describe(); });
    const JobRun threads = run_job(*engine.value(), small_requests(kModel, 5));
    watchdog.look_at(nullptr);
    ASSERT_EQ(result_bits(threads), expected_) << "seed " << seed << "\n" << yaml;
    ASSERT_EQ(threads.report.bytes_read, threads.report.distinct_bytes) << "seed " << seed << "\n" << yaml;
    taps += check_taps(threads.report);
    if (seed % 3 != 0) continue;
    StepScheduler scheduler(static_cast<std::uint64_t>(seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    JobRunOptions options{.stepped = &scheduler};
    options.inject_blocking = [&random] { return random() % 10 == 0; };
    ASSERT_EQ(result_bits(run_job(*engine.value(), small_requests(kModel, 5), options)), expected_)
        << "seed " << seed << ", stepped\n"
        << yaml;
  }
  EXPECT_GT(taps, count / 4);
}

// Whatever a job with such a pipeline answers, it comes to an end.
void run_to_an_end(const std::filesystem::path& container, const PipelineSpec& spec, Watchdog& watchdog) {
  auto engine = Engine::open(container, spec, {});
  if (!engine) return;
  RepeatedSource source(small_requests(kModel, 1).front(), 3);
  CollectingSink sink;
  watchdog.look_at([&engine] { return engine.value()->describe(); });
  const auto report = engine.value()->run({.source = &source, .sink = &sink});
  watchdog.look_at(nullptr);
  if (report.is_ok()) {
    EXPECT_EQ(sink.results.size(), 3U);
  }
}

std::vector<std::string> valid_files() {
  std::vector<std::string> files = {std::string(default_pipeline_yaml())};
  const std::filesystem::path configs = std::filesystem::path(COLIBRI_TEST_DATA) / ".." / "configs";
  for (const auto& entry : std::filesystem::directory_iterator(configs)) {
    if (entry.path().extension() != ".yaml") continue;
    std::ifstream file(entry.path());
    std::ostringstream text;
    text << file.rdbuf();
    files.push_back(text.str());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST_F(RandomPipelines, DamagedFilesAreRefusedOrRun) {
  const std::vector<std::string> files = valid_files();
  const int count = rounds(600, 10'000);
  int ran = 0;
  for (int seed = 0; seed < count; ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    const std::string valid =
        seed % 2 == 0 ? random_pipeline(number, cpus_, experts_) : files[number / 2 % files.size()];
    const std::string yaml = mutated(valid, number);
    Watchdog watchdog("damage with seed " + std::to_string(seed) + "\n" + yaml);
    std::string problems;
    const auto spec = accepted(yaml, &problems);
    if (!spec) {
      EXPECT_FALSE(problems.empty());
      continue;
    }
    ++ran;
    run_to_an_end(container_, *spec, watchdog);
  }
  // Damage to comments, names and numbers leaves files right: both outcomes are seen.
  EXPECT_GT(ran, count / 50);
  EXPECT_LT(ran, count * 9 / 10);
  std::printf("%d of %d damaged files were accepted\n", ran, count);
}

}  // namespace
}  // namespace colibri::testing
