// configs/batch.yaml and block.yaml: what the files say is what the specs hold, and nothing is wrong with
// them.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/topology/builtin_kinds.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string config(const std::string& name) {
  return read_file(std::string(COLIBRI_TEST_DATA) + "/../configs/" + name);
}
std::string batch_yaml() { return config("batch.yaml"); }

TEST(StandardPipeline, IsCompiledIn) { EXPECT_EQ(default_pipeline_yaml(), batch_yaml()); }

TEST(BlockPipeline, IsCompiledInAndHasNoProblems) {
  EXPECT_EQ(block_pipeline_yaml(), config("block.yaml"));
  PipelineProblems problems;
  const PipelineSpec spec =
      parse_pipeline(block_pipeline_yaml(), "built-in", testing::builtin_kinds(), {}, problems);
  check_pipeline(spec, testing::builtin_kinds(), problems);
  EXPECT_EQ(problems.to_status().message(), "");
  EXPECT_EQ(spec.stages.front().kind, "block_in");
  EXPECT_EQ(spec.stages.back().kind, "block_out");
}

TEST(StandardPipeline, HasNoProblems) {
  PipelineProblems problems;
  const PipelineSpec spec =
      parse_pipeline(default_pipeline_yaml(), "built-in", testing::builtin_kinds(), {}, problems);
  check_pipeline(spec, testing::builtin_kinds(), problems);
  EXPECT_EQ(problems.to_status().message(), "");
  EXPECT_EQ(spec.stages.size(), 12u);
  EXPECT_EQ(spec.edges.size(), 20u);
  EXPECT_EQ(spec.stages[6].name, "fetch");
  EXPECT_EQ(spec.edges[0].from_stage, "read");
  EXPECT_EQ(spec.edges[0].to_port, "requests");
  EXPECT_FALSE(spec.threads.has_value());
  EXPECT_EQ(spec.memory.experts.kind, SizeSetting::Kind::automatic);
}

// The settings that the file shows commented out are settings: with the marks removed it still parses.
TEST(StandardPipeline, CommentedSettingsAreValid) {
  std::istringstream lines{batch_yaml()};
  std::string yaml, line;
  bool past_version = false;
  while (std::getline(lines, line)) {
    if (line.starts_with("version:")) past_version = true;
    if (past_version && line.starts_with("# ")) line = line.substr(2);
    yaml += line + "\n";
  }
  PipelineProblems problems;
  const PipelineSpec spec = parse_pipeline(yaml, "batch.yaml", testing::builtin_kinds(), {}, problems);
  check_pipeline(spec, testing::builtin_kinds(), problems);
  EXPECT_EQ(problems.to_status().message(), "");
  EXPECT_EQ(spec.threads, 8u);
  EXPECT_EQ(spec.memory.experts.percent, 25);
  EXPECT_EQ(spec.memory.dynamic.bytes, std::uint64_t{2} << 30);
  EXPECT_EQ(spec.steps.max_rows, 512u);
  EXPECT_EQ(spec.profile.output, "run.json");
}

}  // namespace
}  // namespace colibri
