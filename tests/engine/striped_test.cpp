// A model whose experts lie in two directories gives the answers of the model in one file, to the bit, and
// reads from both.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "io/checkpoint/convert.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/small_job.hpp"
#include "topology/expert_partition.hpp"

namespace colibri::testing {
namespace {

namespace fs = std::filesystem;

fs::path demo_checkpoint() {
  return fs::path(COLIBRI_TEST_DATA).parent_path() / "configs" / "demo" / "checkpoint";
}

std::vector<Request> requests() {
  std::vector<Request> all;
  for (std::int32_t i = 0; i < 12; ++i) {
    std::vector<std::int32_t> prompt;
    for (std::int32_t t = 0; t < 5 + 7 * i; ++t) prompt.push_back(17 + (i * 131 + t * 37) % 4000);
    all.push_back(i % 4 == 3 ? score_request(prompt) : generate_request(prompt, 6));
    if (i % 4 != 3) all.back().logprobs = 3;
    if (i % 4 != 3) all.back().logprobs_given = true;
  }
  return all;
}

class StripedModel : public ::testing::Test {
 protected:
  StripedModel() {
    ConvertOptions options;
    for (const char* drive : {"drive0", "drive1"}) {
      fs::create_directories(folder_ / drive);
      options.stripe.push_back(folder_ / drive);
    }
    const auto converted = convert_checkpoint(demo_checkpoint(), folder_ / "model", options);
    EXPECT_TRUE(converted.is_ok()) << converted.status().to_string();
  }
  ~StripedModel() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  fs::path folder_ = fs::path(::testing::TempDir()) / ("colibri.striped." + std::to_string(::getpid()));
};

TEST_F(StripedModel, AnswersLikeTheModelInOneFile) {
  const auto whole =
      open_engine(container_of(demo_checkpoint(), "config.json", "auto"), {{"memory.experts", "25%"}});
  ASSERT_NE(whole, nullptr);
  const JobRun expected = run_job(*whole, requests());
  const auto expected_bits = result_bits(expected);
  for (const char* backend : {"pread", "auto"}) {
    const auto striped =
        open_engine(folder_ / "model", {{"memory.experts", "25%"}, {"stages.fetch.backend", backend}});
    ASSERT_NE(striped, nullptr);
    const JobRun run = run_job(*striped, requests());
    EXPECT_EQ(result_bits(run), expected_bits) << backend;
    EXPECT_EQ(run.report.bytes_read, run.report.distinct_bytes);
    EXPECT_GT(run.report.bytes_read, 0U);
  }
}

// configs/two-drives.yaml: each fetch has the experts of one drive, and reads from nowhere else.
TEST_F(StripedModel, AFetchForEachDrive) {
  const Registry registry = builtin_registry();
  const auto infos = registry.infos();
  std::ifstream file(demo_checkpoint().parent_path().parent_path() / "two-drives.yaml", std::ios::binary);
  const std::string yaml{std::istreambuf_iterator<char>(file), {}};
  const std::vector<Override> overrides = {{"memory.experts", "25%", {}}, {"memory.dynamic", "64MiB", {}}};
  PipelineProblems problems;
  const PipelineSpec spec = parse_pipeline(yaml, "two-drives.yaml", infos, overrides, problems);
  check_pipeline(spec, infos, problems);
  ASSERT_EQ(problems.to_status().to_string(), Status().to_string());
  auto engine = Engine::open(folder_ / "model", spec, {});
  ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
  const Container& container = engine.value()->container();
  std::uint32_t drive = 0;
  for (const StageSpec& stage : spec.stages) {
    if (stage.kind != "fetch") continue;
    const auto part =
        ExpertPartition::parse(effective_param(stage, *registry.find("fetch")->info, "experts"));
    ASSERT_TRUE(part.is_ok());
    for (std::uint32_t expert = 0; expert < container.spec().num_experts; ++expert) {
      EXPECT_EQ(part->contains(expert), container.record(0, expert).file == drive)
          << stage.name << " " << expert;
    }
    ++drive;
  }
  EXPECT_EQ(drive, 2U);
  const auto whole =
      open_engine(container_of(demo_checkpoint(), "config.json", "auto"), {{"memory.experts", "25%"}});
  ASSERT_NE(whole, nullptr);
  const JobRun run = run_job(*engine.value(), requests());
  EXPECT_EQ(result_bits(run), result_bits(run_job(*whole, requests())));
  EXPECT_EQ(run.report.bytes_read, run.report.distinct_bytes);
  for (const StageReport& stage : run.report.stages) {
    if (stage.kind != "fetch") continue;
    EXPECT_GT(stage.metric("bytes_read_total"), 0U) << stage.name;
  }
}

}  // namespace
}  // namespace colibri::testing
