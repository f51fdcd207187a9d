// colibri check: the shipped pipeline is right, every mistake of a wrong one is told at once, and
// settings come from where they should.
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/cli_runner.hpp"

namespace colibri::test {
namespace {

const std::string kPipeline = COLIBRI_TEST_DATA "/../configs/batch.yaml";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Check, AcceptsTheShippedPipeline) {
  const RunResult result = run_colibri({"check", kPipeline});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "ok: " + kPipeline + "\n");
  EXPECT_EQ(result.err, "");
}

// Waves before and after their layers are of one type: what they have been through tells them apart.
TEST(Check, RefusesSwappedWaves) {
  const TemporaryFolder folder;
  std::string text = read_file(kPipeline);
  const auto swap = [&text](const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  swap("{from: attend.routed, to: route.waves}", "{from: attend.finished, to: route.waves}");
  swap("{from: attend.finished, to: sample.waves}", "{from: attend.routed, to: sample.waves}");
  write_file(folder.file("swapped.yaml"), text);
  const RunResult result = run_colibri({"check", folder.file("swapped.yaml")});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.err,
                       "attend.finished sends a wave that is finished but route.waves takes one that is "
                       "attended; expected ports of one state"))
      << result.err;
  EXPECT_TRUE(contains(result.err,
                       "attend.routed sends a wave that is attended but sample.waves takes one that is "
                       "finished"))
      << result.err;
}

// Rows and waves that the file gives say what circulates, without a model.
TEST(Check, CapacitiesHoldWhatTheStepsOfTheFileNeed) {
  const TemporaryFolder folder;
  std::string text = read_file(kPipeline);
  const std::string edge = "to: attend.looping";
  ASSERT_TRUE(contains(text, edge));
  text.replace(text.find(edge), edge.size(), edge + ", capacity: 7");
  const std::string file = folder.file("small.yaml");
  write_file(file, text);
  const auto check = [&](const std::string& wave_rows) {
    return run_colibri(
        {"check", file, "--set", "steps.max_rows=256", "--set", "steps.wave_rows=" + wave_rows});
  };
  const RunResult refused = check("32");  // 8 waves
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.err,
                       ".capacity: '7' is less than the 8 messages of type wave that can circulate; "
                       "expected at least 8, or auto"))
      << refused.err;
  EXPECT_TRUE(contains(refused.err, file + ":")) << refused.err;
  EXPECT_EQ(check("37").status, 0) << "7 waves";
}

TEST(Check, MoreWavesThanAnyEdgeHoldsAreRefusedAtTheirSetting) {
  const RunResult refused =
      run_colibri({"check", kPipeline, "--set", "steps.max_rows=100000", "--set", "steps.wave_rows=2"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.err,
                       "--set steps.wave_rows: too many waves: 50000 in 1 steps of 100000 rows; "
                       "expected at most 32767: raise steps.wave_rows or lower steps.max_rows"))
      << refused.err;
}

TEST(Check, DumpsWhatIsEffective) {
  const RunResult result = run_colibri({"check", kPipeline, "--dump", "--set", "steps.max_rows=10", "--set",
                                        "steps.wave_rows=100", "--set", "threads=4096"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "10: no wave has more rows than its step")) << result.out;
  EXPECT_TRUE(contains(result.out, "4096 threads on ")) << result.out;
}

TEST(Check, DrawsEveryStage) {
  const RunResult result = run_colibri({"check", kPipeline, "--dot"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "digraph")) << result.out;
  for (const char* stage : {"read", "admit", "embed", "attend", "route", "predict", "fetch", "transfer",
                            "compute", "combine", "sample", "write"}) {
    EXPECT_TRUE(contains(result.out, stage)) << stage;
  }
}

TEST(Check, DumpsWhatItCanReadAgain) {
  TemporaryFolder folder;
  const RunResult dumped = run_colibri({"check", kPipeline, "--dump"});
  ASSERT_EQ(dumped.status, 0) << dumped.err;
  const std::string again = folder.file("dumped.yaml");
  write_file(again, dumped.out);
  const RunResult checked = run_colibri({"check", again});
  EXPECT_EQ(checked.status, 0) << checked.err;
}

// The line of a dump that sets `key`.
std::string line_of(const std::string& dump, const std::string& key) {
  const std::size_t at = dump.find(key + ":");
  return at == std::string::npos ? std::string() : dump.substr(at, dump.find('\n', at) - at);
}

TEST(Check, CommandLineWinsOverEnvironmentWinsOverFile) {
  RunOptions options;
  options.environment = {{"COLIBRI_STEPS_MAX_ROWS", "96"}};
  const RunResult environment = run_colibri({"check", kPipeline, "--dump"}, options);
  ASSERT_EQ(environment.status, 0) << environment.err;
  EXPECT_TRUE(contains(line_of(environment.out, "max_rows"), "96")) << environment.out;
  EXPECT_TRUE(contains(line_of(environment.out, "max_rows"), "COLIBRI_STEPS_MAX_ROWS")) << environment.out;

  const RunResult flag = run_colibri({"check", kPipeline, "--max-rows", "112", "--dump"}, options);
  EXPECT_TRUE(contains(line_of(flag.out, "max_rows"), "112")) << flag.out;
  EXPECT_TRUE(contains(line_of(flag.out, "max_rows"), "--max-rows")) << flag.out;

  const RunResult set = run_colibri({"check", kPipeline, "--set", "steps.max_rows=128", "--dump"}, options);
  EXPECT_TRUE(contains(line_of(set.out, "max_rows"), "128")) << set.out;
}

// Either value could be the one that was meant, whichever the form of the flags.
TEST(Check, OneSettingTwiceOnTheCommandLineIsRefused) {
  const RunResult both =
      run_colibri({"check", kPipeline, "--max-rows", "112", "--set", "steps.max_rows=128", "--dump"});
  EXPECT_EQ(both.status, 1);
  EXPECT_TRUE(
      contains(both.err, "--set steps.max_rows: set twice, also by --max-rows; expected each setting once\n"))
      << both.err;
  const RunResult same = run_colibri({"check", kPipeline, "--set", "threads=2", "--set", "threads=2"});
  EXPECT_EQ(same.status, 1);
  EXPECT_TRUE(contains(same.err, "--set threads: set twice; expected each setting once\n")) << same.err;
  EXPECT_EQ(run_colibri({"check", kPipeline, "--set", "threads=2", "--set", "steps.max_rows=128"}).status, 0);
}

TEST(Check, TellsEveryMistakeWithItsPlace) {
  TemporaryFolder folder;
  const std::string file = folder.file("wrong.yaml");
  write_file(file,
             "version: 1\n"
             "steps:\n"
             "  max_rowz: 4\n"
             "stages:\n"
             "  fetch: {kind: fecth}\n");
  const RunResult result = run_colibri({"check", file});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(contains(result.err, file + ":3:3: ")) << result.err;
  EXPECT_TRUE(contains(result.err, "max_rows")) << result.err;
  EXPECT_TRUE(contains(result.err, file + ":5:")) << result.err;
  EXPECT_TRUE(contains(result.err, "colibri: error: check: problems in " + file + ": ")) << result.err;
}

}  // namespace
}  // namespace colibri::test
