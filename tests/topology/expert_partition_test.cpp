// The parts of the experts: what a text names against a list of ids, and how kinds that take it are shown.
#include "topology/expert_partition.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/topology/case_kinds.hpp"
#include "topology/describe_kind.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {
namespace {

struct Part {
  const char* text;
  std::set<std::uint32_t> below_12;  // the ids that it names there
  std::uint32_t largest_named;
  const char* shortest;
};

TEST(ExpertPartition, NamesIds) {
  const std::set<std::uint32_t> everything = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  for (const Part& part : std::initializer_list<Part>{
           {"all", everything, 0, "all"},
           {" all ", everything, 0, "all"},
           {"7", {7}, 7, "7"},
           {"2-5", {2, 3, 4, 5}, 5, "2-5"},
           {"4-4", {4}, 4, "4"},
           {"9-", {9, 10, 11}, 9, "9-"},
           {"0/2", {0, 2, 4, 6, 8, 10}, 1, "0/2"},
           {"3/4", {3, 7, 11}, 3, "3/4"},
           {"0/1", everything, 0, "0-"},
           {"1, 3-4 ,2/5", {1, 2, 3, 4, 7}, 4, "1,3-4,2/5"},
           {"0-4095", everything, 4095, "0-4095"},
           {"4095/4096", {}, 4095, "4095/4096"},
       }) {
    const auto read = ExpertPartition::parse(part.text);
    ASSERT_TRUE(read.is_ok()) << part.text << ": " << read.status().message();
    std::set<std::uint32_t> found;
    for (std::uint32_t id = 0; id < 12; ++id) {
      if (read->contains(id)) found.insert(id);
    }
    EXPECT_EQ(found, part.below_12) << part.text;
    EXPECT_EQ(read->largest_named(), part.largest_named) << part.text;
    EXPECT_EQ(read->text(), part.shortest);
    EXPECT_EQ(ExpertPartition::parse(read->text())->text(), part.shortest);
  }
}

TEST(ExpertPartition, HasALimitOfParts) {
  std::string text = "0";
  for (int id = 1; id < 64; ++id) text += "," + std::to_string(id);
  EXPECT_TRUE(ExpertPartition::parse(text).is_ok());
  EXPECT_NE(
      ExpertPartition::parse(text + ",64").status().message().find("has too many parts; expected at most 64"),
      std::string::npos);
}

// As many stages, parts and edges as a file may have: what is wrong is found, and it does not take for ever.
TEST(ExpertPartition, ManyStagesOfManyParts) {
  constexpr int kEach = 64;
  std::string yaml = "version: 1\nstages:\n";
  std::string edges = "edges:\n";
  const auto name = [](char letter, int i) { return letter + std::to_string(i); };
  for (int i = 0; i < kEach; ++i) {
    std::string parts;
    for (int part = 0; part < kEach; ++part) {
      parts += (part > 0 ? "," : "") + std::to_string(i + part * kEach) + "/4096";
    }
    yaml += "  " + name('d', i) + ": {kind: dealer}\n";
    yaml += "  " + name('w', i) + ": {kind: worker, experts: \"" + parts + "\"}\n";
    for (int j = 0; j < kEach; ++j)
      edges += "  - {from: " + name('d', j) + ".jobs, to: " + name('w', i) + ".jobs}\n";
  }
  PipelineProblems problems;
  const StageInfos kinds = testing::sharing_kinds();
  const PipelineSpec spec = parse_pipeline(yaml + edges, "p.yaml", kinds, {}, problems);
  ASSERT_EQ(problems.to_status().message(), "");
  check_partitions(spec, kinds, 0, problems);
  EXPECT_EQ(problems.to_status().message(), "") << "ids i, i + 64, ... of each: together all, each once";
  check_partitions(spec, kinds, kEach - 1, problems);
  ASSERT_EQ(problems.lines.size(), 1U) << "the last stage has none of 63";
  EXPECT_NE(problems.lines[0].find("stages.w63.experts"), std::string::npos) << problems.lines[0];
}

TEST(ExpertPartition, IsShownLikeAnyParameter) {
  const StageInfos kinds = testing::sharing_kinds();
  const StageInfo& worker = *kinds[kinds.size() - 2];
  ASSERT_EQ(worker.kind, "worker");
  EXPECT_NE(describe_kind(worker).find("  experts: a list of experts; default all\n"), std::string::npos);
  EXPECT_NE(describe_kind_json(worker).find("\"name\": \"experts\""), std::string::npos);
  EXPECT_EQ(describe_kind(*kinds[0]).find("experts:"), std::string::npos);
  EXPECT_NE(pipeline_json_schema(kinds).find("\"experts\": {"), std::string::npos);

  PipelineProblems problems;
  const PipelineSpec spec = parse_pipeline(
      "version: 1\nstages:\n  d: {kind: dealer}\n  a: {kind: worker, experts: [0-3, 5-]}\n"
      "  b: {kind: worker, experts: 4}\n  k: {kind: keeper}\nedges:\n  - {from: d.jobs, to: a.jobs}\n"
      "  - {from: d.jobs, to: b.jobs}\n  - {from: a.done, to: k.done}\n  - {from: b.done, to: k.done}\n",
      "p.yaml", kinds, {}, problems);
  check_pipeline(spec, kinds, problems);
  EXPECT_EQ(problems.to_status().message(), "");
  EXPECT_EQ(effective_param(spec.stages[1], worker, "experts"), "0-3,5-");
  EXPECT_EQ(effective_param(spec.stages[3], *kinds.back(), "experts"), "all");
  const std::string dump = dump_pipeline(spec, kinds);
  EXPECT_NE(dump.find("    experts: \"0-3,5-\"  # p.yaml:4:30\n"), std::string::npos) << dump;
  EXPECT_NE(dump.find("    experts: \"4\"  # p.yaml:5:30\n"), std::string::npos) << dump;
  EXPECT_NE(dump.find("    experts: \"all\"  # default\n"), std::string::npos) << dump;
  const std::string dot = draw_pipeline_dot(spec, kinds);
  EXPECT_NE(dot.find("\"a\" [label=\"a (worker), experts 0-3,5-\"]"), std::string::npos) << dot;
  // A dump is a file that holds the same.
  PipelineProblems again;
  const PipelineSpec dumped = parse_pipeline(dump, "dump.yaml", kinds, {}, again);
  check_pipeline(dumped, kinds, again);
  EXPECT_EQ(again.to_status().message(), "");
  EXPECT_EQ(effective_param(dumped.stages[1], worker, "experts"), "0-3,5-");
}

}  // namespace
}  // namespace colibri
