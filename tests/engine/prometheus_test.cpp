// The metrics text against the grammar of Prometheus' exposition format 0.0.4, and against the report.
#include "runtime/metrics/prometheus.hpp"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

struct Family {
  std::string type;
  std::string help;
  std::map<std::string, double> samples;  // by labels
};

// Fails the test at what the format does not allow: a family in two places, a sample of no family, labels
// twice.
std::map<std::string, Family> parse(const std::string& text) {
  static const std::regex comment(R"(# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+))");
  static const std::regex sample(
      R"(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*")*\})? (\S+))");
  std::map<std::string, Family> families;
  std::string current;
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, comment)) {
      if (match[2] != current) {
        EXPECT_FALSE(families.contains(match[2])) << "a family in two places: " << line;
        current = match[2];
      }
      Family& family = families[current];
      EXPECT_TRUE(family.samples.empty()) << "told of after its samples: " << line;
      std::string& field = match[1] == "TYPE" ? family.type : family.help;
      EXPECT_TRUE(field.empty()) << "told twice: " << line;
      field = match[3];
    } else if (std::regex_match(line, match, sample)) {
      EXPECT_EQ(match[1], current) << line;
      EXPECT_FALSE(families[current].type.empty()) << line;
      EXPECT_TRUE(families[current].samples.emplace(match[2], std::stod(match[3])).second) << line;
    } else {
      ADD_FAILURE() << "no line of the format: " << line;
    }
  }
  return families;
}

TEST(Prometheus, TellsWhatTheReportOfARunTells) {
  const auto engine =
      open_engine(golden_container("olmoe", "config.json", "auto"), {{"memory.experts", "50%"}});
  ASSERT_NE(engine, nullptr);
  run_job(*engine, {score_request(golden_cases("olmoe").at(2).prompt)});
  const RunReport report = engine->stats();
  ASSERT_GT(report.bytes_read, 0U);
  const Registry registry = builtin_registry();
  auto families = parse(prometheus_text(report, registry.infos()));
  EXPECT_EQ(families["colibri_bytes_read_total"].samples[""], static_cast<double>(report.bytes_read));
  EXPECT_EQ(families["colibri_bytes_read_total"].type, "counter");
  EXPECT_EQ(families["colibri_wall_seconds"].samples[""], report.wall_seconds);
  EXPECT_EQ(families["colibri_wall_seconds"].type, "gauge");
  for (const StageReport& stage : report.stages) {
    const std::string label = "{stage=\"" + stage.name + "\"}";
    EXPECT_EQ(families["colibri_stage_busy_seconds_total"].samples.at(label), stage.busy_seconds);
    EXPECT_EQ(families["colibri_stage_blocked_seconds_total"].samples.size(),
              report.stages.size() * stage.blocked_seconds.size());
    for (const auto& [name, value] : stage.metrics) {
      const Family& family = families["colibri_" + stage.kind + "_" + name];
      EXPECT_EQ(family.samples.at(label), static_cast<double>(value)) << name;
      EXPECT_FALSE(family.help.empty()) << name;
    }
  }
}

TEST(Prometheus, KeepsAFamilyTogetherAndQuotesNames) {
  RunReport report;
  StageReport first;
  first.name = "a\"b\\c\nd";
  first.kind = "fetch";
  first.metrics = {{"reads_total", 3}};
  StageReport second = first;
  second.name = "route";
  second.kind = "route";
  second.metrics.clear();
  StageReport third = first;
  third.name = "fetch_2";
  third.metrics = {{"reads_total", 5}};
  report.stages = {first, second, third};
  auto families = parse(prometheus_text(report, {}));
  const auto& samples = families["colibri_fetch_reads_total"].samples;
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples.at(R"({stage="a\"b\\c\nd"})"), 3);
  EXPECT_EQ(samples.at(R"({stage="fetch_2"})"), 5);
}

TEST(Prometheus, OfNothingIsValid) { EXPECT_FALSE(parse(prometheus_text({}, {})).empty()); }

}  // namespace
}  // namespace colibri::testing
