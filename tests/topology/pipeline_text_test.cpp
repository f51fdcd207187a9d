// Dump, drawing, descriptions and schema: read back by the parsers of their languages.
#include <gtest/gtest.h>

#include <algorithm>

#include "io/text/json_document.hpp"
#include "tests/topology/builtin_kinds.hpp"
#include "tests/topology/case_kinds.hpp"
#include "topology/describe_kind.hpp"
#include "topology/pipeline_settings.hpp"
#include "topology/pipeline_spec.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

using testing::builtin_kinds;
using testing::case_kinds;

constexpr std::string_view kYaml = R"(version: 1
model: ../models/a b
threads: 4
memory: {experts: 12.5%, dynamic: 1536MiB, scratch: 1000}
steps: {max_rows: 100}
stages:
  a: {kind: source, workers: 2}
  tuner: {kind: tune, cpus: "0-2,5", threshold: 0.5, label: "x: # \"y\"", read_size: 1.5MB}
  c: {kind: sink, numa_node: 0}
edges:
  - {from: a.waves, to: tuner.waves, capacity: 7}
  - {from: tuner.waves, to: c.waves}
)";

PipelineSpec parse_clean(std::string_view yaml, StageInfos kinds, std::span<const Override> overrides = {}) {
  PipelineProblems problems;
  PipelineSpec spec = parse_pipeline(yaml, "p.yaml", kinds, overrides, problems);
  check_pipeline(spec, kinds, problems);
  EXPECT_EQ(problems.to_status().message(), "") << yaml;
  return spec;
}

std::string without_comments(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    out += line.substr(0, line.rfind("  # ")) + "\n";
    at = end + 1;
  }
  return out.substr(out.find('\n'));  // the first line names the pipeline
}

void expect_same(const PipelineSpec& a, const PipelineSpec& b, StageInfos kinds) {
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.threads, b.threads);
  for (const auto member :
       {&MemorySpec::static_pool, &MemorySpec::dynamic, &MemorySpec::scratch, &MemorySpec::experts}) {
    EXPECT_EQ((a.memory.*member).kind, (b.memory.*member).kind);
    EXPECT_EQ((a.memory.*member).bytes, (b.memory.*member).bytes);
    EXPECT_EQ((a.memory.*member).percent, (b.memory.*member).percent);
  }
  EXPECT_EQ(a.steps.max_rows, b.steps.max_rows);
  EXPECT_EQ(a.steps.wave_rows, b.steps.wave_rows);
  EXPECT_EQ(a.steps.in_flight, b.steps.in_flight);
  EXPECT_EQ(a.profile.output, b.profile.output);
  ASSERT_EQ(a.stages.size(), b.stages.size());
  for (std::size_t i = 0; i < a.stages.size(); ++i) {
    EXPECT_EQ(a.stages[i].name, b.stages[i].name);
    EXPECT_EQ(a.stages[i].kind, b.stages[i].kind);
    EXPECT_EQ(a.stages[i].workers, b.stages[i].workers);
    EXPECT_EQ(a.stages[i].numa_node, b.stages[i].numa_node);
    EXPECT_EQ(a.stages[i].cpus, b.stages[i].cpus);
    for (const StageInfo* info : kinds) {
      if (info->kind != a.stages[i].kind) continue;
      for (const ParamInfo& param : info->params) {
        EXPECT_EQ(effective_param(a.stages[i], *info, param.name),
                  effective_param(b.stages[i], *info, param.name));
      }
    }
  }
  ASSERT_EQ(a.edges.size(), b.edges.size());
  for (std::size_t i = 0; i < a.edges.size(); ++i) {
    EXPECT_EQ(a.edges[i].from_stage + "." + a.edges[i].from_port,
              b.edges[i].from_stage + "." + b.edges[i].from_port);
    EXPECT_EQ(a.edges[i].to_stage + "." + a.edges[i].to_port, b.edges[i].to_stage + "." + b.edges[i].to_port);
    EXPECT_EQ(a.edges[i].capacity, b.edges[i].capacity);
  }
}

TEST(DumpPipeline, ReadsBackEqual) {
  const PipelineSpec spec = parse_clean(kYaml, case_kinds());
  EXPECT_EQ(spec.memory.dynamic.bytes, 1536u << 20);
  EXPECT_EQ(spec.memory.experts.percent, 12.5);
  EXPECT_EQ(spec.stages[1].cpus, (std::vector<std::uint32_t>{0, 1, 2, 5}));
  const std::string dump = dump_pipeline(spec, case_kinds());
  const PipelineSpec back = parse_clean(dump, case_kinds());
  expect_same(spec, back, case_kinds());
  EXPECT_EQ(without_comments(dump_pipeline(back, case_kinds())), without_comments(dump));
}

TEST(DumpPipeline, StandardPipelineReadsBackEqual) {
  const PipelineSpec spec = parse_clean(default_pipeline_yaml(), builtin_kinds());
  expect_same(spec, parse_clean(dump_pipeline(spec, builtin_kinds()), builtin_kinds()), builtin_kinds());
}

TEST(DumpPipeline, SaysWhereEachValueCameFrom) {
  const std::vector<Override> overrides = {
      {"steps.wave_rows", "8", {Origin::Kind::environment, "COLIBRI_STEPS_WAVE_ROWS"}},
      {"stages.tuner.lanes", "3", {Origin::Kind::command_line, "--set"}}};
  const std::string dump = dump_pipeline(parse_clean(kYaml, case_kinds(), overrides), case_kinds());
  for (const std::string_view line :
       {"\nthreads: 4  # p.yaml:3:10\n", "\n  static: auto  # default\n",
        "\n  experts: 12.5%  # p.yaml:4:19\n", "\n  wave_rows: 8  # environment COLIBRI_STEPS_WAVE_ROWS\n",
        "\n    lanes: 3  # command line --set\n", "\n    backend: auto  # default\n",
        "\n    cpus: 0-2,5  # p.yaml:8:29\n",
        "\n  - {from: a.waves, to: tuner.waves, capacity: 7}  # p.yaml:11:5\n",
        "\n  - {from: tuner.waves, to: c.waves, capacity: auto}  # p.yaml:12:5; capacity: default\n"}) {
    EXPECT_NE(dump.find(line), std::string::npos) << line << dump;
  }
}

// Of several values for one path the last wins: variables come first, the command line last.
TEST(Overrides, LastOneWins) {
  const std::vector<Override> overrides = {{"threads", "5", {Origin::Kind::environment, "COLIBRI_THREADS"}},
                                           {"threads", "6", {Origin::Kind::command_line, "--threads"}},
                                           {"threads", "7", {Origin::Kind::command_line, "--set"}}};
  const PipelineSpec spec = parse_clean(kYaml, case_kinds(), overrides);
  EXPECT_EQ(spec.threads, 7u);
  EXPECT_EQ(spec.threads_origin.file, "--set");
}

TEST(Overrides, EnvironmentNamesPaths) {
  const char* const environment[] = {"PATH=/bin", "COLIBRI_THREADS=2", "COLIBRI_MEMORY_EXPERTS=a=b",
                                     "COLIBRI_KERNELS=scalar", nullptr};
  const std::vector<Override> overrides = overrides_from_environment(environment);
  ASSERT_EQ(overrides.size(), 2u);
  EXPECT_EQ(overrides[0].path, "threads");
  EXPECT_EQ(overrides[0].value, "2");
  EXPECT_EQ(overrides[0].origin.file, "COLIBRI_THREADS");
  EXPECT_EQ(overrides[1].path, "memory.experts");
  EXPECT_EQ(overrides[1].value, "a=b");
  EXPECT_TRUE(overrides_from_environment(nullptr).empty());
}

// A relative folder in a file is meant from that file; one that is typed, from where it is typed.
TEST(ModelPath, CountsFromWhereItWasWritten) {
  PipelineProblems problems;
  PipelineSpec spec = parse_pipeline(kYaml, "configs/mine/p.yaml", case_kinds(), {}, problems);
  EXPECT_EQ(spec.model, "../models/a b");
  EXPECT_EQ(model_path(spec), "configs/models/a b");
  EXPECT_EQ(model_path(parse_clean(kYaml, case_kinds())), "../models/a b");
  const char* const environment[] = {"COLIBRI_MODEL=here", nullptr};
  std::vector<Override> overrides = overrides_from_environment(environment);
  EXPECT_EQ(model_path(parse_pipeline(kYaml, "configs/p.yaml", case_kinds(), overrides, problems)), "here");
  overrides.push_back({"model", "/there", {Origin::Kind::command_line, "--model"}});
  EXPECT_EQ(model_path(parse_pipeline(kYaml, "configs/p.yaml", case_kinds(), overrides, problems)), "/there");
  EXPECT_EQ(model_path(parse_clean(default_pipeline_yaml(), builtin_kinds())), "");
  EXPECT_EQ(problems.to_status().message(), "");
}

TEST(DrawPipeline, HasEveryStageAndEdge) {
  const PipelineSpec spec = parse_clean(default_pipeline_yaml(), builtin_kinds());
  const std::string dot = draw_pipeline_dot(spec, builtin_kinds());
  EXPECT_TRUE(dot.starts_with("digraph \"p.yaml\" {\n"));
  EXPECT_TRUE(dot.ends_with("}\n"));
  for (const StageSpec& stage : spec.stages) {
    EXPECT_NE(dot.find("\n  \"" + stage.name + "\" [label=\"" + stage.name + "\"];\n"), std::string::npos);
  }
  EXPECT_NE(dot.find("  \"route\" -> \"fetch\" [label=\"demand: demand\"];\n"), std::string::npos) << dot;
  EXPECT_NE(dot.find("  \"combine\" -> \"attend\" [label=\"next_layer to looping: wave\", style=dashed, "
                     "constraint=false];\n"),
            std::string::npos)
      << dot;
  const PipelineSpec small = parse_clean(kYaml, case_kinds());
  const std::string small_dot = draw_pipeline_dot(small, case_kinds());
  EXPECT_NE(small_dot.find("\"tuner\" [label=\"tuner (tune)\"]"), std::string::npos);
  EXPECT_NE(small_dot.find("[label=\"waves: wave (7)\"]"), std::string::npos);
}

const JsonValue* member(const JsonValue* value, std::initializer_list<std::string_view> path) {
  for (const std::string_view key : path) value = value == nullptr ? nullptr : value->find(key);
  return value;
}

TEST(DescribeKind, TextAndJsonComeFromTheTable) {
  const StageInfo& tune = testing::kCaseKinds[5];
  const std::string text = describe_kind(tune);
  EXPECT_NE(text.find("tune: has parameters\n"), std::string::npos) << text;
  EXPECT_NE(
      text.find("  lanes: an integer from 1 to 64 lanes; default 16\n      reads under way at a time\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("default 0.25; may change while running\n"), std::string::npos);
  EXPECT_NE(text.find("  workers: an integer from 1 to 4096 threads, or auto; default auto\n"),
            std::string::npos);
  EXPECT_NE(text.find("  read_bytes_total  bytes read\n"), std::string::npos);

  const Result<JsonValue> json = parse_json(describe_kind_json(tune));
  ASSERT_TRUE(json.is_ok()) << json.status().to_string();
  EXPECT_EQ(*member(&*json, {"kind"})->text(), "tune");
  const JsonValue::Array& params = *member(&*json, {"params"})->array();
  ASSERT_EQ(params.size(), std::size(testing::kTuneParams) + common_stage_params().size());
  EXPECT_EQ(*params[0].find("name")->text(), "lanes");
  std::uint64_t maximum = 0;
  EXPECT_TRUE(params[0].find("maximum")->to_unsigned(maximum));
  EXPECT_EQ(maximum, 64u);
  EXPECT_EQ(params[2].find("choices")->array()->size(), 2u);
}

TEST(DescribeKind, SaysWhatStateMessagesAreIn) {
  const StageInfo* attend = find_kind(builtin_kinds(), "attend");
  ASSERT_NE(attend, nullptr);
  const std::string text = describe_kind(*attend);
  EXPECT_NE(text.find("routed    wave (attended)  "), std::string::npos) << text;
  const Result<JsonValue> json = parse_json(describe_kind_json(*attend));
  ASSERT_TRUE(json.is_ok());
  EXPECT_EQ(*member(&json->find("outputs")->array()->at(0), {"state"})->text(), "attended");
}

// One line a kind, and everything about each of them for programs.
TEST(ListKinds, HasEveryKindSettingAndKey) {
  const StageInfos kinds = builtin_kinds();
  const std::string text = list_kinds(kinds);
  EXPECT_EQ(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')), kinds.size());
  const Result<JsonValue> json = parse_json(list_kinds_json(kinds));
  ASSERT_TRUE(json.is_ok()) << json.status().to_string();
  const JsonValue::Array& listed = *json->find("kinds")->array();
  ASSERT_EQ(listed.size(), kinds.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    EXPECT_NE(text.find(std::string(kinds[i]->kind) + " "), std::string::npos);
    EXPECT_EQ(*listed[i].find("kind")->text(), kinds[i]->kind);
    EXPECT_EQ(listed[i].find("metrics")->array()->size(), kinds[i]->metrics.size());
    EXPECT_EQ(listed[i].find("params")->array()->size(),
              kinds[i]->params.size() + partition_params(*kinds[i]).size() + common_stage_params().size());
  }
  ASSERT_EQ(json->find("settings")->array()->size(), pipeline_settings().size());
  EXPECT_EQ(json->find("edge")->array()->size(), edge_params().size());
}

TEST(EdgeCapacities, OnCyclesHoldAllCredits) {
  std::string yaml(default_pipeline_yaml());
  const auto set_capacity = [&](std::string_view edge, std::string_view capacity) {
    const std::size_t at = yaml.find(edge);
    ASSERT_NE(at, std::string::npos);
    yaml.insert(yaml.find('}', at), ", capacity: " + std::string(capacity));
  };
  set_capacity("from: attend.routed", "8");
  set_capacity("from: attend.finished", "7");
  set_capacity("from: read.requests", "1");  // on no cycle: a small one only waits
  set_capacity("from: fetch.experts", "3");
  const PipelineSpec spec = parse_clean(yaml, builtin_kinds());
  MessageCredits credits{};
  credits[static_cast<std::size_t>(MessageType::wave)] = 8;
  credits[static_cast<std::size_t>(MessageType::request)] = 100;
  PipelineProblems problems;
  check_edge_capacities(spec, builtin_kinds(), credits, problems);
  ASSERT_EQ(problems.lines.size(), 1u) << problems.to_status().to_string();
  EXPECT_NE(problems.lines[0].find("edges[6].capacity: '7' is less than the 8 messages of type wave that can "
                                   "circulate; expected at least 8, or auto"),
            std::string::npos)
      << problems.lines[0];
}

}  // namespace
}  // namespace colibri
