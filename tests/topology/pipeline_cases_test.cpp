// The case files (cases/README.md): a config, and every problem it has, word for word.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/topology/case_kinds.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string name;
  std::vector<std::string> variables;
  std::vector<std::pair<std::string, std::string>> sets;  // flag, PATH=VALUE
  std::uint32_t experts = 0;                              // of the model; 0: no model
  std::string yaml;
  std::vector<std::string> problems;
};

constexpr std::string_view kStages = "stages:\n  a: {kind: source}\n  b: {kind: tune}\n  c: {kind: sink}\n";
constexpr std::string_view kEdges =
    "edges:\n  - {from: a.waves, to: b.waves}\n  - {from: b.waves, to: c.waves}\n";
constexpr std::string_view kShared =
    "edges:\n  - {from: d.jobs, to: a.jobs}\n  - {from: d.jobs, to: b.jobs}\n"
    "  - {from: a.done, to: k.done}\n  - {from: b.done, to: k.done}\n";
constexpr std::string_view kParams = "lanes, read_size, backend, direct, threshold, label";

std::vector<Case> read_cases(const fs::path& path) {
  std::vector<Case> cases;
  std::ifstream file(path);
  enum class Part { none, yaml, problems } part = Part::none;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("=== ")) {
      cases.push_back({.name = path.stem().string() + ": " + line.substr(4)});
      part = Part::none;
    } else if (line.starts_with("--- set ")) {
      cases.back().sets.emplace_back("--set", line.substr(8));
    } else if (line.starts_with("--- flag ")) {
      const std::size_t blank = line.find(' ', 9);
      cases.back().sets.emplace_back(line.substr(9, blank - 9), line.substr(blank + 1));
    } else if (line.starts_with("--- env ")) {
      cases.back().variables.push_back(line.substr(8));
    } else if (line.starts_with("--- model ")) {
      cases.back().experts = static_cast<std::uint32_t>(std::stoul(line.substr(10)));
    } else if (line == "--- yaml") {
      part = Part::yaml;
    } else if (line == "--- problems") {
      part = Part::problems;
    } else if (part == Part::yaml) {
      cases.back().yaml += line == "$STAGES"   ? kStages
                           : line == "$EDGES"  ? kEdges
                           : line == "$SHARED" ? kShared
                                               : line + "\n";
    } else if (part == Part::problems) {
      if (const std::size_t at = line.find("$PARAMS"); at != std::string::npos) line.replace(at, 7, kParams);
      cases.back().problems.push_back(line);
    }
  }
  return cases;
}

std::vector<std::string> problems_of(const Case& test, StageInfos kinds) {
  std::vector<const char*> environment;
  for (const std::string& variable : test.variables) environment.push_back(variable.c_str());
  environment.push_back(nullptr);
  std::vector<Override> overrides = overrides_from_environment(environment.data());
  for (const auto& [flag, set] : test.sets) {
    const std::size_t equals = set.find('=');
    overrides.push_back(
        {set.substr(0, equals), set.substr(equals + 1), Origin{Origin::Kind::command_line, flag}});
  }
  PipelineProblems problems;
  const PipelineSpec spec = parse_pipeline(test.yaml, "p.yaml", kinds, overrides, problems);
  check_pipeline(spec, kinds, problems);
  // As when a model is opened.
  if (test.experts > 0) check_partitions(spec, kinds, test.experts, problems);
  // The file is told as data when a problem is in it: others are of a variable or a flag, or of no place.
  const bool in_file = std::any_of(problems.lines.begin(), problems.lines.end(),
                                   [](const std::string& line) { return line.starts_with("p.yaml"); });
  EXPECT_EQ(problems.to_status().file(), in_file ? "p.yaml" : "");
  return problems.lines;
}

TEST(PipelineCases, HaveExactlyTheirProblems) {
  std::size_t count = 0;
  for (const char* file :
       {"syntax", "settings", "stages", "edges", "states", "graph", "experts", "overrides"}) {
    const StageInfos kinds = std::string_view(file) == "experts"  ? testing::sharing_kinds()
                             : std::string_view(file) == "states" ? testing::state_kinds()
                                                                  : testing::case_kinds();
    const fs::path path = fs::path(COLIBRI_TEST_DATA) / "topology/cases" / (std::string(file) + ".case");
    const std::vector<Case> cases = read_cases(path);
    EXPECT_FALSE(cases.empty()) << path;
    for (const Case& test : cases) {
      SCOPED_TRACE(test.name);
      const std::vector<std::string> found = problems_of(test, kinds);
      std::string expected_text, found_text;
      for (const std::string& line : test.problems) expected_text += line + "\n";
      for (const std::string& line : found) found_text += line + "\n";
      EXPECT_EQ(found_text, expected_text);
      ++count;
    }
  }
  EXPECT_GE(count, 60u);
}

}  // namespace
}  // namespace colibri
