// The JSON Schema of pipeline files: the committed one is the generated one, and it takes what the program
// takes and refuses what a schema can see to be wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/topology/builtin_kinds.hpp"
#include "tests/topology/case_kinds.hpp"
#include "tests/topology/json_schema.hpp"
#include "topology/describe_kind.hpp"
#include "topology/param_value.hpp"
#include "topology/pipeline_settings.hpp"
#include "topology/yaml_tree.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;
using testing::builtin_kinds;

const fs::path kConfigs = fs::path(COLIBRI_TEST_DATA).parent_path() / "configs";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Plain scalars by the core schema of YAML, as editors read them.
JsonValue scalar(const YamlNode& node) {
  const std::string& text = node.text;
  if (node.quoted) return JsonValue(JsonValue::Data(text));
  if (text == "true" || text == "false") return JsonValue(JsonValue::Data(text == "true"));
  const char* end = text.data() + text.size();
  std::int64_t integer = 0;
  if (std::from_chars(text.data(), end, integer).ptr == end && !text.empty()) {
    return JsonValue(JsonValue::Data(integer));
  }
  double number = 0;
  if (std::from_chars(text.data(), end, number).ptr == end && !text.empty()) {
    return JsonValue(JsonValue::Data(number));
  }
  return JsonValue(JsonValue::Data(text));
}

JsonValue to_json(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::scalar: return scalar(node);
    case YamlNode::Kind::sequence: {
      JsonValue::Array items;
      for (const YamlNode& item : node.items) items.push_back(to_json(item));
      return JsonValue(JsonValue::Data(std::move(items)));
    }
    case YamlNode::Kind::map: {
      JsonValue::Object members;
      for (const YamlEntry& entry : node.entries) members.emplace_back(entry.key, to_json(entry.value));
      return JsonValue(JsonValue::Data(std::move(members)));
    }
    default: return {};
  }
}

class PipelineSchema : public ::testing::Test {
 protected:
  // What the schema says of a file; empty: valid.
  std::string problem(const std::string& yaml) const {
    PipelineProblems problems;
    YamlNode root;
    EXPECT_TRUE(parse_yaml_tree(yaml, "p.yaml", root, problems)) << yaml;
    return testing::JsonSchema(schema_).problem(to_json(root));
  }
  // A file with these lines on top, and these parameters of a stage of this kind.
  std::string file(const std::string& top, const std::string& kind = "fetch", const std::string& params = "",
                   const std::string& edges = "[]") const {
    return "version: 1\n" + top + "stages:\n  x: {kind: " + kind + (params.empty() ? "" : ", ") + params +
           "}\nedges: " + edges + "\n";
  }

  JsonValue schema_ = parse_json(pipeline_json_schema(builtin_kinds())).value();
};

TEST_F(PipelineSchema, CommittedFileIsTheGeneratedOne) {
  EXPECT_EQ(read_file(kConfigs / "pipeline.schema.json"), pipeline_json_schema(builtin_kinds()))
      << "configs/pipeline.schema.json is stale; write it again with\n"
         "  build/release/bin/colibri inspect --schema > configs/pipeline.schema.json";
}

TEST_F(PipelineSchema, TakesEveryShippedPipeline) {
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(kConfigs)) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    const std::string yaml = read_file(entry.path());
    EXPECT_EQ(problem(yaml), "") << entry.path();
    // So that editors find it.
    EXPECT_NE(yaml.find("\n# yaml-language-server: $schema=pipeline.schema.json\n"), std::string::npos)
        << entry.path();
  }
  EXPECT_GT(files, 0U);
}

TEST_F(PipelineSchema, TakesWhatTheProgramTakes) {
  for (const std::string& yaml : {
           file("threads: 4\n"),
           file("threads: auto\nmemory: {experts: 25%, dynamic: 1.5GB, scratch: 1000, static: auto}\n"),
           file("memory: {experts: min}\nsteps: {max_rows: 100, wave_rows: auto}\nprofile: {output: "
                "run.json}\n"),
           file("", "fetch", "lanes: 16, inflight_bytes: 1 MiB, direct: 'on', hints: false, workers: 2"),
           file("", "compute", "numa_node: 1"),
           file("", "compute", "cpus: '0-3,8'"),
           file("", "compute", "cpus: [0, 1, 2]"),
           file("", "compute", "cpus: 3"),
           file("", "read", "", "[{from: read.requests, to: admit.requests, capacity: 8}]"),
           file("", "read", "", "[{from: read.requests, to: admit.requests, capacity: auto}]"),
       }) {
    EXPECT_EQ(problem(yaml), "") << yaml;
  }
}

TEST_F(PipelineSchema, RefusesWhatASchemaCanSee) {
  const struct {
    std::string yaml, problem;
  } cases[] = {
      {"version: 2\nstages: {}\nedges: []\n", "$.version: not the constant"},
      {"version: 1\nedges: []\n", "$: no stages"},
      {file("thread: 4\n"), "$: unknown thread"},
      {file("threads: 0\n"), "$.threads: none of the alternatives"},
      {file("threads: '4'\n"), "$.threads: none of the alternatives"},
      {file("memory: {expert: 25%}\n"), "$.memory: unknown expert"},
      {file("memory: {dynamic: 25%}\n"), "$.memory.dynamic: none of the alternatives"},
      {file("memory: {experts: much}\n"), "$.memory.experts: none of the alternatives"},
      {file("memory: 4GiB\n"), "$.memory: not of type object"},
      {file("", "fetsh"), "$.stages.x.kind: none of the choices"},
      {"version: 1\nstages: {x: {lanes: 1}}\nedges: []\n", "$.stages.x: no kind"},
      {"version: 1\nstages: {X-1: {kind: read}}\nedges: []\n", "$.stages name X-1: does not match"},
      {file("", "fetch", "lane: 16"), "$.stages.x: unknown lane"},
      {file("", "read", "lanes: 16"), "$.stages.x: unknown lanes"},
      {file("", "fetch", "lanes: 1000"), "$.stages.x.lanes: none of the alternatives"},
      {file("", "fetch", "read_bytes: 12 parsecs"), "$.stages.x.read_bytes: does not match"},
      {file("", "fetch", "read_bytes: 100"), "$.stages.x.read_bytes: below the minimum"},
      {file("", "fetch", "backend: aio"), "$.stages.x.backend: none of the choices"},
      {file("", "fetch", "hints: maybe"), "$.stages.x.hints: not of type boolean"},
      {file("", "compute", "cpus: '0-'"), "$.stages.x.cpus: none of the alternatives"},
      {file("", "compute", "cpus: [a]"), "$.stages.x.cpus: none of the alternatives"},
      {file("", "read", "", "[{from: read.requests}]"), "$.edges[0]: no to"},
      {file("", "read", "", "[{from: read.request, to: admit.requests}]"), "$.edges[0].from: does not match"},
      {file("", "read", "", "[{from: read.requests, to: admit.waves}]"), ""},  // a port, though not of admit
      {file("", "read", "", "[{from: read, to: admit.requests}]"), "$.edges[0].from: does not match"},
      {file("", "read", "", "[{from: a.demand, to: b.demand, capacity: 0}]"),
       "$.edges[0].capacity: none of the alternatives"},
      {file("", "read", "", "[{from: a.demand, to: b.demand, via: c}]"), "$.edges[0]: unknown via"},
      {file("", "read", "", "{}"), "$.edges: not of type array"},
  };
  for (const auto& one : cases) EXPECT_EQ(problem(one.yaml), one.problem) << one.yaml;
}

TEST(PipelineSchemaOfHostKinds, KnowsPartsOfTheExperts) {
  const JsonValue schema = parse_json(pipeline_json_schema(testing::sharing_kinds())).value();
  const auto problem = [&schema](const std::string& kind, const std::string& experts) {
    PipelineProblems problems;
    YamlNode root;
    parse_yaml_tree("version: 1\nstages: {x: {kind: " + kind + ", experts: " + experts + "}}\nedges: []\n",
                    "p.yaml", root, problems);
    return testing::JsonSchema(schema).problem(to_json(root));
  };
  for (const char* experts : {"all", "0/2", "7", "32-", "'0-31,40, 1/4'", "[0, 3-5, 32-]"}) {
    EXPECT_EQ(problem("worker", experts), "") << experts;
  }
  for (const char* experts : {"first", "'0,,2'", "1/", "{a: 1}", "[[1]]"}) {
    EXPECT_EQ(problem("worker", experts), "$.stages.x.experts: none of the alternatives") << experts;
  }
  EXPECT_EQ(problem("dealer", "0/2"), "$.stages.x: unknown experts");
}

// Every parameter of every kind, and every setting: its default is taken, a value past its range is not.
TEST_F(PipelineSchema, KnowsEveryDefaultAndRange) {
  const auto past = [](const ParamInfo& param) {
    if (param.type == ParamType::choice || param.type == ParamType::boolean)
      return std::string("no_such_choice");
    if (param.type == ParamType::text) return std::string("{a: map}");
    return param.maximum < 1e15 ? number_text(param.maximum + 1) : std::string("-1");
  };
  for (const StageInfo* info : builtin_kinds()) {
    for (const auto& params : {info->params, partition_params(*info), common_stage_params()}) {
      for (const ParamInfo& param : params) {
        const std::string name(param.name);
        std::string others;  // that must be given with it
        for (const ParamInfo& other : info->params) {
          if (other.required && other.name != name) others += ", " + std::string(other.name) + ": some";
        }
        std::string value(param.required ? "some" : param.default_value);
        if (value.empty()) value = "''";
        const auto problem_of = [&](const std::string& given) {
          return problem(file("", std::string(info->kind), name + ": " + given + others));
        };
        EXPECT_EQ(problem_of(value), "") << info->kind << "." << name;
        EXPECT_NE(problem_of(past(param)), "") << info->kind << "." << name;
        if (param.required) {
          EXPECT_NE(problem_of("''"), "") << info->kind << "." << name;
        }
      }
    }
  }
  for (const SettingInfo& setting : pipeline_settings()) {
    const auto top = [&](const std::string& value) {
      const std::string pair = std::string(setting.param.name) + ": " + value;
      return setting.section.empty() ? pair + "\n" : std::string(setting.section) + ": {" + pair + "}\n";
    };
    const std::string value(setting.param.default_value);
    EXPECT_EQ(problem(file(top(value.empty() ? "''" : value))), "") << setting.path();
    EXPECT_NE(problem(file(top(past(setting.param)))), "") << setting.path();
  }
}

// The validator above reads only what the schema uses; this one is of other people.
TEST_F(PipelineSchema, AValidatorFromOutsideAgrees) {
  if (std::system("python3 -c 'import jsonschema, yaml' >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "python3 with the modules jsonschema and yaml is not installed";
  }
  const fs::path script =
      fs::path(::testing::TempDir()) / ("colibri.schema." + std::to_string(::getpid()) + ".py");
  std::ofstream(script) << R"(import glob, json, sys, jsonschema, yaml
schema = json.load(open(sys.argv[1] + "/pipeline.schema.json"))
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)
for name in glob.glob(sys.argv[1] + "/*.yaml"):
    validator.validate(yaml.safe_load(open(name)))
wrong = yaml.safe_load(open(sys.argv[1] + "/batch.yaml"))
for key, value in [("lanes", 0), ("lane", 1), ("backend", "aio"), ("hints", "maybe")]:
    wrong["stages"]["fetch"] = {"kind": "fetch", key: value}
    assert not validator.is_valid(wrong), key
)";
  const std::string command = "python3 '" + script.string() + "' '" + kConfigs.string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  fs::remove(script);
}

}  // namespace
}  // namespace colibri
