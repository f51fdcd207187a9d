// convert, inspect and verify through the program, from checkpoint to container, with what can go
// wrong on the way: an output that exists, damage, a stop in the middle.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "io/text/json_document.hpp"
#include "tests/cli/cli_runner.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = COLIBRI_TEST_DATA "/golden/";
const std::string kDemo = COLIBRI_TEST_DATA "/../configs/demo/checkpoint";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::uint64_t number(const JsonValue& object, const char* name) {
  const JsonValue* value = object.find(name);
  std::uint64_t result = 0;
  EXPECT_TRUE(value != nullptr && value->to_unsigned(result)) << name;
  return result;
}

class ContainerVerbs : public testing::Test {
 protected:
  RunResult convert(const std::string& checkpoint, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"convert", checkpoint, model_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_colibri(arguments);
  }

  TemporaryFolder folder_;
  std::string model_ = folder_.file("model");
};

TEST_F(ContainerVerbs, ConvertsInspectsAndVerifies) {
  const RunResult converted = convert(kGolden + "qwen3_moe");
  ASSERT_EQ(converted.status, 0) << converted.err;
  EXPECT_TRUE(contains(converted.out, "converted qwen3_moe to " + model_)) << converted.out;

  const RunResult verified = run_colibri({"verify", model_});
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_TRUE(contains(verified.out, "ok: ")) << verified.out;

  const RunResult text = run_colibri({"inspect", model_});
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* word : {"qwen3_moe", "hidden_size", "num_experts", "expert bytes per token"}) {
    EXPECT_TRUE(contains(text.out, word)) << word << " not in: " << text.out;
  }
}

// The figures follow from config.json: three matrices per expert, two bytes per weight in bf16.
TEST_F(ContainerVerbs, InspectsAsJson) {
  ASSERT_EQ(convert(kDemo, {"--weights", "bf16"}).status, 0);
  const RunResult result = run_colibri({"inspect", model_, "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Result<JsonValue> json = parse_json(result.out);
  ASSERT_TRUE(json.is_ok()) << json.status().to_string();
  const Result<JsonValue> config = parse_json(read_file(kDemo + "/config.json"));
  ASSERT_TRUE(config.is_ok());
  const JsonValue* spec = json->find("spec");
  ASSERT_NE(spec, nullptr);
  EXPECT_EQ(number(*spec, "hidden_size"), number(*config, "hidden_size"));
  EXPECT_EQ(number(*spec, "num_experts"), number(*config, "num_local_experts"));
  EXPECT_EQ(number(*spec, "vocab_size"), number(*config, "vocab_size"));
  EXPECT_EQ(number(*spec, "num_experts_per_token"), number(*config, "num_experts_per_tok"));

  const std::uint64_t layers = number(*config, "num_hidden_layers");
  const std::uint64_t record =
      3 * number(*config, "hidden_size") * number(*config, "moe_intermediate_size") * 2;
  ASSERT_EQ(record % 4096, 0U) << "the demo's records need no padding";
  EXPECT_EQ(number(*json, "num_moe_layers"), layers);
  EXPECT_EQ(number(*json, "expert_record_bytes"), record);
  EXPECT_EQ(number(*json, "expert_bytes"), layers * number(*config, "num_local_experts") * record);
  EXPECT_EQ(number(*json, "expert_bytes_per_token"),
            layers * number(*config, "num_experts_per_tok") * record);
  // The demo's embedding is its head as well: every token reads all of it.
  EXPECT_EQ(number(*json, "dense_bytes_per_token"), number(*json, "dense_bytes"));
}

TEST_F(ContainerVerbs, Int4TakesFourAndAHalfBitsAWeight) {
  ASSERT_EQ(convert(kDemo, {"--weights", "int4"}).status, 0);
  EXPECT_EQ(run_colibri({"verify", model_}).status, 0);
  const Result<JsonValue> json = parse_json(run_colibri({"inspect", model_, "--json"}).out);
  ASSERT_TRUE(json.is_ok()) << json.status().to_string();
  const Result<JsonValue> config = parse_json(read_file(kDemo + "/config.json"));
  ASSERT_TRUE(config.is_ok());
  const std::uint64_t weights = 3 * number(*config, "hidden_size") * number(*config, "moe_intermediate_size");
  const std::uint64_t bytes = weights * 9 / 16;
  EXPECT_EQ(number(*json, "expert_record_bytes"), (bytes + 4095) / 4096 * 4096);
  const RunResult text = run_colibri({"inspect", model_});
  EXPECT_TRUE(contains(text.out, "int4_g32 (asked for: int4)")) << text.out;
  EXPECT_EQ(run_colibri({"plan", model_}).status, 0);
}

TEST_F(ContainerVerbs, CountsOneRowOfAnEmbeddingThatIsNoHead) {
  ASSERT_EQ(convert(kGolden + "qwen3_moe", {"--weights", "bf16"}).status, 0);
  const RunResult result = run_colibri({"inspect", model_, "--json"});
  const Result<JsonValue> json = parse_json(result.out);
  ASSERT_TRUE(json.is_ok()) << json.status().to_string();
  const Result<JsonValue> config = parse_json(read_file(kGolden + "qwen3_moe/config.json"));
  ASSERT_TRUE(config.is_ok());
  const std::uint64_t unread_rows = number(*config, "vocab_size") - 1;
  EXPECT_EQ(number(*json, "dense_bytes") - number(*json, "dense_bytes_per_token"),
            unread_rows * number(*config, "hidden_size") * 2);
}

TEST_F(ContainerVerbs, ReplacesAnOutputOnlyWhenForced) {
  ASSERT_EQ(convert(kGolden + "olmoe").status, 0);
  const RunResult refused = convert(kGolden + "mixtral");
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.err, "colibri: error: convert: ")) << refused.err;
  EXPECT_TRUE(contains(refused.err, "--force")) << refused.err;
  EXPECT_TRUE(contains(run_colibri({"inspect", model_}).out, "olmoe"));
  const RunResult forced = convert(kGolden + "mixtral", {"--force"});
  EXPECT_EQ(forced.status, 0) << forced.err;
  EXPECT_TRUE(contains(run_colibri({"inspect", model_}).out, "mixtral"));
}

TEST_F(ContainerVerbs, StripesTheExpertsOverDirectories) {
  const std::string first = folder_.file("fast0");
  const std::string second = folder_.file("fast1");
  fs::create_directory(first);
  fs::create_directory(second);
  ASSERT_EQ(convert(kGolden + "olmoe", {"--stripe", first + "," + second}).status, 0);
  EXPECT_EQ(run_colibri({"verify", model_}).status, 0);
  const RunResult text = run_colibri({"inspect", model_});
  for (const std::string& word : {"experts.0.bin           -> " + first, "experts.1.bin           -> " + second,
                                  std::string("experts 1/2")}) {
    EXPECT_TRUE(contains(text.out, word)) << word << " not in: " << text.out;
  }
  const Result<JsonValue> json = parse_json(run_colibri({"inspect", model_, "--json"}).out);
  ASSERT_TRUE(json.is_ok()) << json.status().to_string();
  const JsonValue* files = json->find("expert_files");
  ASSERT_NE(files, nullptr);
  ASSERT_NE(files->array(), nullptr);
  ASSERT_EQ(files->array()->size(), 2U);
  std::uint64_t bytes = 0;
  for (const JsonValue& file : *files->array()) bytes += number(file, "bytes");
  EXPECT_EQ(bytes, number(*json, "expert_bytes"));

  // A drive that is not there is named, with what to look at.
  fs::rename(second, folder_.file("unmounted"));
  const RunResult gone = run_colibri({"inspect", model_});
  EXPECT_EQ(gone.status, 1);
  EXPECT_TRUE(contains(gone.err, "experts.1.bin -> " + second)) << gone.err;
}

TEST_F(ContainerVerbs, RefusesAWrongListOfDirectories) {
  for (const char* list : {"", ",", "a,", ",a", "a,,b"}) {
    const RunResult result = convert(kGolden + "olmoe", {"--stripe", list});
    EXPECT_EQ(result.status, 2) << list << ": " << result.err;
  }
  const RunResult missing = convert(kGolden + "olmoe", {"--stripe", folder_.file("a") + "," + folder_.file("b")});
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(contains(missing.err, "does not exist: " + folder_.file("a"))) << missing.err;
  EXPECT_FALSE(fs::exists(model_));
}

TEST_F(ContainerVerbs, StagesACopyWithoutLinks) {
  const std::string first = folder_.file("fast0");
  const std::string second = folder_.file("fast1");
  fs::create_directory(first);
  fs::create_directory(second);
  ASSERT_EQ(convert(kGolden + "olmoe", {"--stripe", first + "," + second}).status, 0);
  const std::string copy = folder_.file("copy");
  const RunResult staged = run_colibri({"stage", model_, copy});
  EXPECT_EQ(staged.status, 0) << staged.err;
  EXPECT_TRUE(contains(staged.out, "copied " + model_ + " to " + copy)) << staged.out;
  EXPECT_EQ(run_colibri({"verify", copy}).status, 0);
  const RunResult text = run_colibri({"inspect", copy});
  EXPECT_TRUE(contains(text.out, "experts 1/2")) << text.out;
  EXPECT_FALSE(contains(text.out, "->")) << text.out;
  EXPECT_TRUE(contains(text.out, "file system")) << text.out;
  EXPECT_TRUE(contains(run_colibri({"plan", copy}).out, "experts are read from: ")) << text.out;

  const RunResult again = run_colibri({"stage", model_, copy});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(contains(again.out, "holds this model already")) << again.out;
  ASSERT_EQ(convert(kGolden + "mixtral", {"--force"}).status, 0);
  const RunResult other = run_colibri({"stage", model_, copy});
  EXPECT_EQ(other.status, 1);
  EXPECT_TRUE(contains(other.err, "--force")) << other.err;
  EXPECT_EQ(run_colibri({"stage", model_, copy, "--force"}).status, 0);
  EXPECT_EQ(run_colibri({"stage", folder_.file("none"), copy}).status, 1);
}

TEST_F(ContainerVerbs, VerifyFindsOneFlippedBit) {
  ASSERT_EQ(convert(kGolden + "mixtral").status, 0);
  const std::string file = model_ + "/experts.bin";
  const std::uint64_t middle = fs::file_size(file) / 2;
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(middle));
  const char flipped = static_cast<char>(stream.get() ^ 1);
  stream.seekp(static_cast<std::streamoff>(middle));
  stream.put(flipped);
  stream.close();
  const RunResult result = run_colibri({"verify", model_});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(contains(result.err, "experts.bin")) << result.err;
}

TEST_F(ContainerVerbs, RefusesWhatIsNoCheckpoint) {
  const RunResult empty = convert(folder_.path());
  EXPECT_EQ(empty.status, 1);
  EXPECT_TRUE(contains(empty.err, "config.json")) << empty.err;
  EXPECT_FALSE(fs::exists(model_));
}

// Wherever the signal hits, the status says what happened and the same command then succeeds.
TEST_F(ContainerVerbs, StopsOnASignalAndGoesOn) {
  for (const int signal : {SIGINT, SIGTERM}) {
    fs::remove_all(model_);
    RunningProgram program({kColibriProgram, "convert", kDemo, model_, "--weights", "f32"}, {});
    // Work has begun when the folder is there; the signal arrives somewhere in the middle of it.
    while (!fs::exists(model_) && !program.ended()) std::this_thread::yield();
    program.send(signal);
    const RunResult stopped = program.wait();
    if (stopped.status != 0) {
      EXPECT_EQ(stopped.status, 128 + signal) << stopped.err;
      EXPECT_TRUE(contains(stopped.err, "the same command goes on")) << stopped.err;
      const RunResult resumed = convert(kDemo, {"--weights", "f32"});
      EXPECT_EQ(resumed.status, 0) << resumed.err;
    }
    EXPECT_EQ(run_colibri({"verify", model_}).status, 0);
  }
}

TEST_F(ContainerVerbs, AStageThatASignalStoppedGoesOn) {
  ASSERT_EQ(convert(kDemo).status, 0);
  const std::string copy = folder_.file("copy");
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    fs::remove_all(copy);
    RunningProgram program({kColibriProgram, "stage", model_, copy}, {});
    // Killed between the two folders that it makes it leaves an empty one: not unfinished, not begun.
    while (!fs::exists(copy + "/stage.partial") && !program.ended()) std::this_thread::yield();
    program.send(signal);
    const RunResult stopped = program.wait();
    if (stopped.status != 0) {
      EXPECT_EQ(stopped.status, 128 + signal) << stopped.err;
      const RunResult refused = run_colibri({"inspect", copy});
      EXPECT_EQ(refused.status, 1);
      EXPECT_TRUE(contains(refused.err, "unfinished copy")) << refused.err;
      const RunResult resumed = run_colibri({"stage", model_, copy});
      EXPECT_EQ(resumed.status, 0) << resumed.err;
    }
    EXPECT_EQ(run_colibri({"verify", copy}).status, 0);
  }
}

}  // namespace
}  // namespace colibri::test
