// colibri run: the experts alone over a file of hidden states. What comes out is what the whole model
// computed, to the bit; what cannot be run is refused by name, and nothing that was there is lost.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <thread>

#include "io/checkpoint/safetensors.hpp"
#include "kernels/number_format.hpp"
#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;

const std::string kBlock = COLIBRI_TEST_DATA "/../configs/block.yaml";
constexpr std::size_t kHidden = 256;  // of the demo
constexpr std::uint32_t kLayers = 6;

std::vector<std::string> run_arguments(const std::string& input, const std::string& output,
                                       std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"run", kBlock,     "--model", demo_model(), "--input",
                                        input, "--output", output,    "-q"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::uint32_t> bits_of(const SafetensorsFile& file, const std::string& name) {
  const auto values = file.read_f32(name);
  EXPECT_TRUE(values.is_ok()) << values.status().to_string();
  std::vector<std::uint32_t> bits;
  if (!values) return bits;
  for (const float value : *values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

std::vector<std::uint32_t> bits_of(const std::string& path, const std::string& name) {
  const auto file = SafetensorsFile::open(path);
  EXPECT_TRUE(file.is_ok()) << file.status().to_string();
  return file ? bits_of(*file, name) : std::vector<std::uint32_t>();
}

std::vector<float> random_rows(std::size_t rows, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(rows * kHidden);
  for (float& value : values) value = normal(random);
  return values;
}

void write_tensors(
    const std::string& path,
    const std::vector<std::tuple<std::string, std::vector<std::uint64_t>, std::vector<float>>>& tensors) {
  SafetensorsWriter writer;
  for (const auto& [name, shape, values] : tensors) writer.add(name, shape, values);
  const Status written = writer.write(path);
  ASSERT_TRUE(written.is_ok()) << written.to_string();
}

// One tensor of any type, its header written by hand.
void write_raw(const std::string& path, const std::string& name, const std::string& dtype,
               const std::string& shape, const std::string& bytes) {
  std::string header = "{\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
                       ",\"data_offsets\":[0," + std::to_string(bytes.size()) + "]}}";
  const std::uint64_t length = header.size();
  write_file(path, std::string(reinterpret_cast<const char*>(&length), 8) + header + bytes);
}

class Run : public ::testing::Test {
 protected:
  // Expects a refusal with these words; the output is as it was before.
  void expect_refused(const RunResult& run, const std::string& words, int status = 1) {
    EXPECT_EQ(run.status, status) << run.err;
    EXPECT_TRUE(contains(run.err, words)) << run.err;
    EXPECT_EQ(read_file(output_), "before") << words;
    EXPECT_FALSE(fs::exists(output_ + ".partial")) << words;
  }
  void SetUp() override { write_empty_output(); }
  // A file of results from before, by its look; the tests see whether it is still there.
  void write_empty_output() { write_file(output_, "before"); }

  const TemporaryFolder folder_;
  const std::string input_ = folder_.file("x.safetensors");
  const std::string output_ = folder_.file("y.safetensors");
};

TEST_F(Run, EqualsTheTraceToTheBit) {
  Json ids = Json::array();
  for (int i = 0; i < 70; ++i) ids.push_back(16 + (i * 37) % 4000);
  write_file(folder_.file("ids.json"), ids.dump());
  ASSERT_EQ(run_colibri({"trace", demo_model(), "--tokens", folder_.file("ids.json"), "-o", input_}).status,
            0);
  for (const std::vector<std::string>& settings :
       {std::vector<std::string>{}, std::vector<std::string>{"--experts-memory", "min", "--threads", "1"},
        std::vector<std::string>{"--max-rows", "20", "--wave-rows", "7", "--experts-memory", "25%"},
        std::vector<std::string>{"--set", "steps.in_flight=2", "--max-rows", "16", "--experts-memory",
                                 "min"}}) {
    fs::remove(output_);
    const RunResult run = run_colibri(run_arguments(input_, output_, settings));
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.err, "");
    EXPECT_EQ(run.out, "");
    const auto found = SafetensorsFile::open(output_);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    ASSERT_EQ(found->tensors().size(), kLayers);
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      const std::string name = "moe_output." + std::to_string(layer);
      EXPECT_EQ(found->tensors()[layer].name, name);
      EXPECT_EQ(found->tensors()[layer].shape, (std::vector<std::uint64_t>{70, kHidden}));
      EXPECT_EQ(bits_of(*found, name), bits_of(input_, name));
    }
    EXPECT_FALSE(fs::exists(output_ + ".partial"));
  }
}

TEST_F(Run, TakesTheModelFromTheFileTheEnvironmentOrTheFlag) {
  write_tensors(input_, {{"moe_input.2", {3, kHidden}, random_rows(3, 1)}});
  fs::create_directory_symlink(demo_model(), folder_.file("container"));
  const std::string pipeline = folder_.file("mine.yaml");
  const auto run = [&](const std::string& model_line, const RunOptions& options = {},
                       std::vector<std::string> flags = {}) {
    write_file(pipeline, read_file(kBlock) + model_line);
    std::vector<std::string> arguments = {"run", pipeline, "--input", input_, "--output", output_, "-q"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    fs::remove(output_);
    return run_colibri(arguments, options);
  };
  EXPECT_EQ(run("model: container\n").status, 0)
      << "relative to the pipeline file, wherever the program runs";
  EXPECT_EQ(run("model: nowhere\n", {.environment = {{"COLIBRI_MODEL", demo_model()}}}).status, 0);
  EXPECT_EQ(
      run("model: nowhere\n", {.environment = {{"COLIBRI_MODEL", "nowhere"}}}, {"--model", demo_model()})
          .status,
      0);
  const RunResult wrong = run("model: nowhere\n");
  EXPECT_EQ(wrong.status, 1);
  EXPECT_TRUE(contains(wrong.err, folder_.file("nowhere"))) << wrong.err;
  const RunResult none = run("");
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(contains(none.err, "no model is named") && contains(none.err, "--model")) << none.err;
}

TEST_F(Run, WidensHalfPrecision) {
  std::string bf16, f16;
  std::vector<float> as_bf16, as_f16;
  for (const float value : random_rows(5, 2)) {
    const std::uint16_t brain = kernels::f32_to_bf16(value);
    bf16.append(reinterpret_cast<const char*>(&brain), 2);
    as_bf16.push_back(kernels::bf16_to_f32(brain));
    // Any bits that are a finite number.
    const auto half = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16 & 0xbbffU);
    f16.append(reinterpret_cast<const char*>(&half), 2);
    as_f16.push_back(kernels::f16_to_f32(half));
  }
  for (const auto& [dtype, bytes, values] :
       {std::tuple{"BF16", bf16, as_bf16}, std::tuple{"F16", f16, as_f16}}) {
    fs::remove(output_);
    write_raw(input_, "moe_input.1", dtype, "[5,256]", bytes);
    ASSERT_EQ(run_colibri(run_arguments(input_, output_)).status, 0);
    const auto found = bits_of(output_, "moe_output.1");
    fs::remove(output_);
    write_tensors(input_, {{"moe_input.1", {5, kHidden}, values}});
    ASSERT_EQ(run_colibri(run_arguments(input_, output_)).status, 0);
    EXPECT_EQ(found, bits_of(output_, "moe_output.1")) << dtype;
  }
}

TEST_F(Run, AcceptsATensorWithoutRows) {
  fs::remove(output_);
  write_tensors(input_,
                {{"moe_input.4", {0, kHidden}, {}}, {"moe_input.0", {2, kHidden}, random_rows(2, 3)}});
  std::vector<std::string> arguments = run_arguments(input_, output_);
  std::erase(arguments, "-q");
  const RunResult loud = run_colibri(arguments);
  ASSERT_EQ(loud.status, 0) << loud.err;
  EXPECT_TRUE(contains(loud.err, "run: wrote " + output_ + ": 2 rows, ")) << loud.err;
  EXPECT_EQ(bits_of(output_, "moe_output.4").size(), 0U);
  EXPECT_EQ(bits_of(output_, "moe_output.0").size(), 2 * kHidden);
}

TEST_F(Run, RowsThatAreNoNumbersAreNamedAndHaveNoResult) {
  fs::remove(output_);
  std::vector<float> values = random_rows(40, 4);
  write_tensors(input_, {{"moe_input.3", {40, kHidden}, values}, {"moe_input.5", {40, kHidden}, values}});
  ASSERT_EQ(run_colibri(run_arguments(input_, output_)).status, 0);
  const auto expected = bits_of(output_, "moe_output.3");
  const auto other = bits_of(output_, "moe_output.5");
  std::vector<float> damaged = values;
  damaged[17 * kHidden + 5] = std::numeric_limits<float>::quiet_NaN();
  damaged[39 * kHidden] = std::numeric_limits<float>::infinity();
  write_tensors(input_, {{"moe_input.3", {40, kHidden}, damaged}, {"moe_input.5", {40, kHidden}, values}});
  const RunResult run = run_colibri(run_arguments(input_, output_, {"--max-rows", "16"}));
  EXPECT_EQ(run.status, 3);
  EXPECT_TRUE(
      contains(run.err, "run: moe_input.3, row 17: the input holds a value that is not finite, in column 5"))
      << run.err;
  EXPECT_TRUE(contains(run.err, "run: moe_input.3, row 39: ")) << run.err;
  EXPECT_TRUE(contains(run.err, "rows without a result: 2; they are NaN in the output: " + output_))
      << run.err;
  const auto found = bits_of(output_, "moe_output.3");
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (i / kHidden == 17 || i / kHidden == 39) {
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(found[i])));
    } else {
      ASSERT_EQ(found[i], expected[i]) << "row " << i / kHidden;
    }
  }
  EXPECT_EQ(bits_of(output_, "moe_output.5"), other);
}

TEST_F(Run, RefusesInputsThatDoNotFit) {
  const std::string zeros(2 * kHidden * 4, '\0');
  struct Case {
    std::string name, dtype, shape, words;
    std::size_t bytes;
  };
  const Case cases[] = {
      {"hidden", "F32", "[2,256]", "holds no hidden states", 2048},
      {"moe_input.0x", "F32", "[2,256]", "moe_input.0x; expected moe_input.N", 2048},
      {"moe_input.007", "F32", "[2,256]", "moe_input.007; expected moe_input.N", 2048},
      {"moe_input.", "F32", "[2,256]", "ends in no layer number", 2048},
      {"moe_input.6", "F32", "[2,256]", "moe_input.6; the model has experts in layers 0, 1, 2, 3, 4, 5",
       2048},
      {"moe_input.4294967295", "F32", "[2,256]", "a layer without experts", 2048},
      {"moe_input.0", "I32", "[2,256]", "moe_input.0 has dtype I32; expected F32, F16 or BF16", 2048},
      {"moe_input.0", "F64", "[1,256]", "has dtype F64", 2048},
      {"moe_input.0", "F32", "[4,128]", "is [4, 128]; expected [rows, 256]", 2048},
      {"moe_input.0", "F32", "[512]", "is [512]; expected [rows, 256]", 2048},
      {"moe_input.0", "F32", "[1,2,256]", "is [1, 2, 256]; expected [rows, 256]", 2048},
      {"moe_input.0", "F32", "[2,256]", "truncated", 0},
  };
  for (const Case& one : cases) {
    write_raw(input_, one.name, one.dtype, one.shape, zeros.substr(0, one.bytes == 0 ? 2048 : one.bytes));
    if (one.bytes == 0) fs::resize_file(input_, 40);
    expect_refused(run_colibri(run_arguments(input_, output_)), one.words);
  }
  write_raw(input_, "moe_input.0", "F32", "[2,256]", zeros);
  fs::resize_file(input_, fs::file_size(input_) - 1);
  expect_refused(run_colibri(run_arguments(input_, output_)), input_);
  write_file(input_, "no tensors at all");
  expect_refused(run_colibri(run_arguments(input_, output_)), input_);
  expect_refused(run_colibri(run_arguments(folder_.file("absent"), output_)), folder_.file("absent"));
}

// A layer of attention and a dense FFN has no experts to run.
TEST_F(Run, RefusesDenseLayers) {
  ASSERT_EQ(run_colibri({"convert", COLIBRI_TEST_DATA "/golden/qwen2_moe", folder_.file("model")}).status, 0);
  const auto golden = SafetensorsFile::open(COLIBRI_TEST_DATA "/golden/qwen2_moe/golden.safetensors");
  const std::uint64_t hidden = golden->find("moe_input.0")->shape[1];
  write_tensors(input_, {{"moe_input.1", {1, hidden}, std::vector<float>(hidden)}});
  expect_refused(
      run_colibri({"run", kBlock, "--model", folder_.file("model"), "--input", input_, "-o", output_}),
      "moe_input.1; the model has experts in layers 0, 2");
}

TEST_F(Run, NeverWritesOverOtherFiles) {
  write_tensors(input_, {{"moe_input.0", {2, kHidden}, random_rows(2, 5)}});
  const std::string input_bytes = read_file(input_);
  const auto refused = [&](const std::string& output, const std::string& words) {
    const RunResult run = run_colibri(run_arguments(input_, output));
    EXPECT_EQ(run.status, 1) << output;
    EXPECT_TRUE(contains(run.err, words)) << run.err;
    EXPECT_EQ(read_file(input_), input_bytes) << output;
  };
  refused(input_, "the output would overwrite the input");
  fs::create_symlink(input_, folder_.file("link"));
  refused(folder_.file("link"), "the output would overwrite the input");
  fs::create_hard_link(input_, folder_.file("hard"));
  refused(folder_.file("hard"), "the output would overwrite the input");
  refused(demo_model() + "/experts.bin", "into the model's folder");
  refused(demo_model() + "/new.safetensors", "into the model's folder");
  EXPECT_FALSE(fs::exists(demo_model() + "/new.safetensors"));
  refused(output_, "this is no safetensors file, so it is not replaced: " + output_);
  EXPECT_EQ(read_file(output_), "before");
  refused(folder_.path(), "the output is a folder: ");
  refused("", "no file to write to was named");
  refused("/dev/full", "no safetensors file");
  refused("-", "cannot go to standard output");
  refused(folder_.file("none/y"), folder_.file("none/y"));
  // The name that an unfinished output has is taken.
  fs::copy_file(input_, folder_.file("z.partial"));
  const RunResult partial = run_colibri(run_arguments(folder_.file("z.partial"), folder_.file("z")));
  EXPECT_EQ(partial.status, 1);
  EXPECT_TRUE(contains(partial.err, "the unfinished output would overwrite the input")) << partial.err;
  EXPECT_EQ(read_file(folder_.file("z.partial")), input_bytes);
  // The pipeline file itself.
  write_file(folder_.file("p.yaml"), read_file(kBlock));
  const RunResult pipeline = run_colibri({"run", folder_.file("p.yaml"), "--model", demo_model(), "--input",
                                          input_, "--output", folder_.file("p.yaml")});
  EXPECT_EQ(pipeline.status, 1);
  EXPECT_TRUE(contains(pipeline.err, "the output would overwrite the pipeline")) << pipeline.err;
  // Results from before are replaced, and through a link what it points to.
  fs::remove(output_);
  ASSERT_EQ(run_colibri(run_arguments(input_, output_)).status, 0);
  const std::string results = read_file(output_);
  fs::create_symlink(output_, folder_.file("results"));
  ASSERT_EQ(run_colibri(run_arguments(input_, folder_.file("results"))).status, 0);
  EXPECT_TRUE(fs::is_symlink(folder_.file("results")));
  EXPECT_EQ(read_file(output_), results);
}

TEST_F(Run, AnOutputThatDoesNotFitLeavesNothing) {
  fs::remove(output_);
  write_tensors(input_, {{"moe_input.0", {64, kHidden}, random_rows(64, 6)}});
  std::string command = "ulimit -f 16; exec '" + std::string(kColibriProgram) + "'";
  for (const std::string& argument : run_arguments(input_, output_)) command += " '" + argument + "'";
  const RunResult run = run_program({"/bin/bash", "-c", command});
  EXPECT_EQ(run.status, 1);
  EXPECT_TRUE(contains(run.err, "y.safetensors.partial")) << run.err;
  EXPECT_TRUE(contains(run.err, "File too large")) << run.err;
  EXPECT_FALSE(fs::exists(output_));
  EXPECT_FALSE(fs::exists(output_ + ".partial"));
}

TEST_F(Run, SaysWhichVerbRunsOtherPipelines) {
  write_tensors(input_, {{"moe_input.0", {1, kHidden}, random_rows(1, 7)}});
  const std::string batch = COLIBRI_TEST_DATA "/../configs/batch.yaml";
  expect_refused(run_colibri({"run", batch, "--model", demo_model(), "--input", input_, "-o", output_}),
                 "takes requests, not hidden states: " + batch + "; run it with: colibri batch", 2);
  const BatchRun other("{\"id\": \"a\", \"prompt\": \"x\"}\n", {"--pipeline", kBlock});
  EXPECT_EQ(other.status(), 1);
  EXPECT_TRUE(contains(other.err(), "run it with: colibri run ")) << other.err();
  expect_refused(run_colibri(run_arguments(input_, output_, {"--set", "stages.route.kind=rout"})),
                 "did you mean 'route'?");
}

TEST_F(Run, HelpHasExamples) {
  const RunResult help = run_colibri({"run", "--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* word :
       {"Examples:", "--input", "--output", "--model", "moe_input.N", "NaN", "Exit status"}) {
    EXPECT_TRUE(contains(help.out, word)) << word;
  }
}

// 32 MiB of rows pass through a plan that has no room for them.
TEST_F(Run, MemoryStaysWithinThePlan) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  fs::remove(output_);
  write_tensors(input_, {{"moe_input.1", {32768, kHidden}, random_rows(32768, 8)}});
  const std::string profile = folder_.file("profile.json");
  const RunResult run = run_colibri(run_arguments(
      input_, output_, {"--max-rows", "256", "--experts-memory", "100%", "--profile", profile}));
  ASSERT_EQ(run.status, 0) << run.err;
  const Json report = Json::parse(read_file(profile));
  EXPECT_EQ(report["steps"], 128);
  const double planned = report["planned_bytes"].get<double>();
  EXPECT_LE(report["peak_rss_bytes"].get<double>(), 1.1 * planned + (16 << 20));
  EXPECT_EQ(fs::file_size(output_) > 32U << 20, true);
}

TEST_F(Run, ASignalStopsItAndLeavesNothing) {
  fs::remove(output_);
  write_tensors(input_, {{"moe_input.1", {32768, kHidden}, random_rows(32768, 9)}});
  // One row a step, each expert read anew: far longer than it takes to send a signal.
  RunningProgram running({kColibriProgram, "run", kBlock, "--model", demo_model(), "--input", input_,
                          "--output", output_, "--max-rows", "1", "--experts-memory", "min"},
                         {});
  while (!fs::exists(output_ + ".partial") && !running.ended())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  running.send(SIGTERM);
  const RunResult run = running.wait();
  EXPECT_EQ(run.status, 143) << run.err;
  EXPECT_TRUE(contains(run.err, "stopped by a signal: " + output_ + " is not written")) << run.err;
  EXPECT_FALSE(fs::exists(output_));
  EXPECT_FALSE(fs::exists(output_ + ".partial"));
}

}  // namespace
}  // namespace colibri::test
