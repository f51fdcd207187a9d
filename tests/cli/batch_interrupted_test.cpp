// colibri batch, ended in the middle: signals, kills, full disks and readers that go away. Whatever
// happens, --resume completes the job, and its results are those of a run that nothing disturbed.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int kKills = 20;

// Requests of very different lengths, so that results come one by one all the time.
std::string job_input() {
  std::vector<Json> lines = demo_requests();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i]["max_tokens"] = 1 + 2 * i;
    lines[i]["ignore_eos"] = true;
  }
  return jsonl(lines);
}

class Interrupted : public testing::Test {
 protected:
  void SetUp() override { write_file(input_, job_input()); }

  static const std::map<std::uint64_t, Json>& undisturbed() {
    static const std::map<std::uint64_t, Json> results = BatchRun(job_input()).results();
    return results;
  }
  // Results reach the disk often, so that an end in the middle finds some there.
  std::vector<std::string> command(std::vector<std::string> flags = {}) const {
    std::vector<std::string> words = {kColibriProgram,
                                      "batch",
                                      demo_model(),
                                      input_,
                                      "-o",
                                      output_,
                                      "--experts-memory",
                                      "25%",
                                      "--set",
                                      "stages.write.flush_seconds=0.01"};
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
  }
  std::size_t lines_there() const {
    const std::string text = read_file(output_);
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  void wait_for_lines(const RunningProgram& program, std::size_t count) const {
    while (lines_there() < count && !program.ended()) std::this_thread::sleep_for(milliseconds{5});
  }
  void expect_resume_completes() const {
    const RunResult resumed = run_program(command({"--resume"}));
    EXPECT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_EQ(by_index(read_file(output_)), undisturbed());
    EXPECT_FALSE(fs::exists(output_ + ".journal"));
  }

  TemporaryFolder folder_;
  std::string input_ = folder_.file("in.jsonl");
  std::string output_ = folder_.file("out.jsonl");
};

TEST_F(Interrupted, BySignals) {
  for (const int signal : {SIGINT, SIGTERM}) {
    fs::remove(output_);
    RunningProgram program(command(), {});
    wait_for_lines(program, 3);
    ASSERT_FALSE(program.ended());
    program.send(signal);
    const RunResult stopped = program.wait();
    EXPECT_EQ(stopped.status, 128 + signal) << stopped.err;
    EXPECT_TRUE(contains(stopped.err, "--resume")) << stopped.err;
    EXPECT_TRUE(contains(stopped.err, "tokens/s")) << "the report covers what was done: " << stopped.err;
    const std::size_t kept = lines_there();
    EXPECT_GE(kept, 3U);
    EXPECT_LT(kept, undisturbed().size());
    // Without --resume the unfinished job is not overwritten by mistake.
    EXPECT_EQ(run_program(command()).status, 1);
    EXPECT_EQ(lines_there(), kept);
    expect_resume_completes();
  }
}

TEST_F(Interrupted, BySignalsWhileItWaitsForInput) {
  const std::string pipe = folder_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::fstream writer(pipe);  // both ways: opening waits for nobody, and the input never ends
  RunningProgram program({kColibriProgram, "batch", demo_model(), pipe}, {});
  std::this_thread::sleep_for(milliseconds{300});
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().status, 128 + SIGTERM);
}

TEST_F(Interrupted, ByKillsAtRandomMoments) {
  std::mt19937 random(7);
  int kills = 0;
  bool mixed = false;  // whether a kill ever left some results and not all
  while (kills < kKills) {
    RunningProgram program(command({"--resume"}), {});
    std::this_thread::sleep_for(milliseconds{20 + random() % 400});
    program.send(SIGKILL);
    const RunResult run = program.wait();
    if (run.status == 128 + SIGKILL) {
      ++kills;
      const std::size_t there = lines_there();
      mixed |= there > 0 && there < undisturbed().size();
      continue;
    }
    // It was done before: the whole is compared, and a new job takes its turn.
    ASSERT_EQ(run.status, 0) << run.err;
    ASSERT_EQ(by_index(read_file(output_)), undisturbed());
    fs::remove(output_);
  }
  EXPECT_TRUE(mixed);
  expect_resume_completes();
}

TEST_F(Interrupted, ByALimitOnFileSizes) {
  // In blocks of 512 bytes: 8 KiB, less than the results.
  std::vector<std::string> limited = {"sh", "-c", "ulimit -f 16; exec \"$0\" \"$@\""};
  for (std::string& word : command()) limited.push_back(std::move(word));
  const RunResult run = run_program(limited);
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_TRUE(contains(run.err, output_)) << run.err;
  EXPECT_TRUE(contains(run.err, "--resume")) << run.err;
  EXPECT_GT(lines_there(), 0U);
  expect_resume_completes();
}

TEST_F(Interrupted, ByAFullDevice) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const RunResult run = run_colibri({"batch", demo_model(), input_, "-o", "/dev/full"});
  EXPECT_EQ(run.status, 1);
  EXPECT_TRUE(contains(run.err, "No space left on device")) << run.err;
}

// The shell notes the status of the first program of a pipe whose second one reads a byte and goes.
TEST_F(Interrupted, ByAReaderThatGoesAway) {
  const std::string noted = folder_.file("status");
  const std::vector<std::vector<std::string>> commands = {
      {kColibriProgram, "batch", demo_model(), input_},
      {kColibriProgram, "generate", demo_model(), "-p", "In the", "--max-tokens", "400", "--ignore-eos"},
  };
  for (const std::vector<std::string>& words : commands) {
    std::vector<std::string> shell = {"sh", "-c", "{ \"$@\"; echo $? > \"$0\"; } | head -c 1", noted};
    shell.insert(shell.end(), words.begin(), words.end());
    const RunResult run = run_program(shell);
    EXPECT_EQ(read_file(noted), "1\n") << run.err;
    EXPECT_TRUE(contains(run.err, "standard output")) << run.err;
  }
}

}  // namespace
}  // namespace colibri::test
