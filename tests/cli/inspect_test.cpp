// colibri inspect: containers and stage kinds under one verb, told apart.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/text/json_document.hpp"
#include "tests/cli/cli_runner.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = COLIBRI_TEST_DATA "/golden/";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Inspect : public testing::Test {
 protected:
  RunResult inspect(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {kColibriProgram, "inspect"});
    RunOptions options;
    options.working_directory = folder_.path();
    return run_program(arguments, options);
  }

  TemporaryFolder folder_;
};

TEST_F(Inspect, ListsTheKinds) {
  const RunResult list = inspect({});
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_TRUE(contains(list.out, "\nfetch      reads expert records")) << list.out;
  const Result<JsonValue> json = parse_json(inspect({"--json"}).out);
  ASSERT_TRUE(json.is_ok()) << json.status().to_string();
  std::size_t lines = 0;
  for (const char c : list.out) lines += c == '\n' ? 1 : 0;
  EXPECT_EQ(json->find("kinds")->array()->size(), lines);
}

TEST_F(Inspect, ShowsOneKind) {
  const RunResult kind = inspect({"fetch"});
  EXPECT_EQ(kind.status, 0) << kind.err;
  for (const char* part : {"fetch: reads expert", "\ninputs", "\n  lanes: an integer from 1 to 256",
                           "\n  numa_node: ", "\n  bytes_read_total "}) {
    EXPECT_TRUE(contains(kind.out, part)) << part << kind.out;
  }
  const Result<JsonValue> json = parse_json(inspect({"fetch", "--json"}).out);
  ASSERT_TRUE(json.is_ok()) << json.status().to_string();
  EXPECT_EQ(*json->find("kind")->text(), "fetch");
}

TEST_F(Inspect, TellsContainersFromKinds) {
  // A folder that is no container does not hide the kind, unless it is written as a path.
  fs::create_directory(folder_.file("fetch"));
  EXPECT_TRUE(contains(inspect({"fetch"}).out, "fetch: reads"));
  const RunResult path = inspect({"./fetch"});
  EXPECT_EQ(path.status, 1);
  EXPECT_TRUE(contains(path.err, "not a colibri model: ./fetch")) << path.err;
  fs::remove(folder_.file("fetch"));
  ASSERT_EQ(run_colibri({"convert", kGolden + "olmoe", folder_.file("fetch")}).status, 0);
  EXPECT_TRUE(contains(inspect({"fetch"}).out, "family                  olmoe"));

  fs::create_directory(folder_.file("other"));
  EXPECT_TRUE(contains(inspect({"other"}).err, "not a colibri model: other"));
  const RunResult neither = inspect({"ftech"});
  EXPECT_EQ(neither.status, 1);
  EXPECT_TRUE(contains(neither.err, "neither a model folder nor a stage kind: 'ftech'")) << neither.err;
  EXPECT_TRUE(contains(neither.err, "did you mean 'fetch'?")) << neither.err;
}

TEST_F(Inspect, PrintsTheCommittedSchema) {
  EXPECT_EQ(inspect({"--schema"}).out, read_file(COLIBRI_TEST_DATA "/../configs/pipeline.schema.json"));
}

TEST_F(Inspect, RefusesFlagsThatExcludeEachOther) {
  EXPECT_EQ(inspect({"--schema", "--json"}).status, 2);
  EXPECT_EQ(inspect({"--schema", "fetch"}).status, 2);
  EXPECT_EQ(inspect({"--markdown", "--schema"}).status, 2);
}

}  // namespace
}  // namespace colibri::test
