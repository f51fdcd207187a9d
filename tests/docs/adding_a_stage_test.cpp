// stages/ADDING_A_STAGE.md, step 4: the pipeline file that the page describes runs with the kind
// that the page adds. This program has the page's own builtin.cpp, guard.cpp and test in it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/docs/markdown.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream in(fs::path(COLIBRI_TEST_DATA).parent_path() / file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// configs/batch.yaml with the lines of the page's YAML block where the page says that they go.
std::string pipeline_of_the_page(const std::string& limit) {
  std::istringstream block(
      test::parse_page(text_of("stages/ADDING_A_STAGE.md")).blocks_in("yaml").at(0).text);
  std::string stage, edges, line;
  while (std::getline(block, line)) (line.starts_with("  - {from") ? edges : stage) += line + "\n";
  stage.replace(stage.find("1000"), 4, limit);
  std::string yaml = text_of("configs/batch.yaml");
  const std::string below = "\nstages:\n";
  yaml.insert(yaml.find(below) + below.size(), stage);
  const std::size_t replaced = yaml.find("  - {from: combine.next_layer");
  return yaml.replace(replaced, yaml.find('\n', replaced) + 1 - replaced, edges);
}

std::unique_ptr<Engine> engine_of(const std::string& yaml) {
  const Registry registry = builtin_registry();
  const std::vector<const StageInfo*> kinds = registry.infos();
  PipelineProblems problems;
  PipelineSpec spec = parse_pipeline(yaml, "page", kinds, {}, problems);
  check_pipeline(spec, kinds, problems);
  EXPECT_TRUE(problems.lines.empty()) << problems.to_status().to_string();
  auto engine = Engine::open(golden_container("qwen3_moe", "config.json", "auto"), std::move(spec), {});
  if (!engine) ADD_FAILURE() << engine.status().to_string();
  return engine ? std::move(engine).value() : nullptr;
}

Request longest_prompt() {
  std::vector<std::int32_t> longest;
  for (const GoldenCase& one : golden_cases("qwen3_moe")) {
    if (one.prompt.size() > longest.size()) longest = one.prompt;
  }
  return score_request(longest);
}

TEST(AddingAStage, ThePipelineOfThePageRuns) {
  const std::unique_ptr<Engine> guarded = engine_of(pipeline_of_the_page("1000"));
  const std::unique_ptr<Engine> plain = engine_of(text_of("configs/batch.yaml"));
  ASSERT_TRUE(guarded && plain);
  const JobRun with = run_job(*guarded, {longest_prompt()});
  const JobRun without = run_job(*plain, {longest_prompt()});
  EXPECT_TRUE(with.results.at(0).error.is_ok());
  EXPECT_FALSE(with.results.at(0).prompt_logprobs.empty());
  EXPECT_EQ(with.results.at(0).prompt_logprobs, without.results.at(0).prompt_logprobs);
}

TEST(AddingAStage, ItsParameterWorks) {
  const std::unique_ptr<Engine> guarded = engine_of(pipeline_of_the_page("0"));
  ASSERT_TRUE(guarded);
  const JobRun run = run_job(*guarded, {longest_prompt()});
  EXPECT_NE(run.results.at(0).error.to_string().find("beyond the limit after layer"), std::string::npos)
      << run.results.at(0).error.to_string();
}

}  // namespace
}  // namespace colibri::testing
