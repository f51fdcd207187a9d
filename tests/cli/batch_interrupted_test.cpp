// colibri batch, ended in the middle: signals, kills, full disks and readers that go away. Whatever
// happens, --resume completes the job, and its results are those of a run that nothing disturbed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "io/text/unique_descriptor.hpp"
#include "tests/cli/demo_model.hpp"

namespace colibri::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int kKills = 20;
constexpr int kPipeBytes = 4096;  // the least that a pipe may hold

// Signals are blocked from then on and read by a thread; before, the first one would end the program.
void wait_until_signals_are_watched(const RunningProgram& program) {
  const std::string status = "/proc/" + std::to_string(program.pid()) + "/status";
  for (; !program.ended(); std::this_thread::sleep_for(milliseconds{1})) {
    const std::string text = read_file(status);
    const std::size_t at = text.find("SigBlk:");
    if (at == std::string::npos) continue;
    if ((std::stoull(text.substr(at + 7), nullptr, 16) & (1ULL << (SIGINT - 1))) != 0) return;
  }
}

int pipe_level(int descriptor) {
  int bytes = 0;
  return ::ioctl(descriptor, FIONREAD, &bytes) == 0 ? bytes : 0;
}

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

// The results go to a pipe, and weights are read when it has a reader: the signal comes before that.
TEST_F(Interrupted, BySignalsBeforeWeightsAreRead) {
  const std::string pipe = folder_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  RunningProgram program({kColibriProgram, "batch", demo_model(), input_, "-o", pipe}, {});
  wait_until_signals_are_watched(program);
  program.send(SIGINT);
  ASSERT_TRUE(program.wait_for_err("stopping"));
  const UniqueDescriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  const RunResult run = program.wait();
  EXPECT_EQ(run.status, 128 + SIGINT);
  EXPECT_TRUE(contains(run.err, "before the job began")) << run.err;
  EXPECT_FALSE(contains(run.err, "tokens/s")) << "there is nothing to report: " << run.err;
}

// A step that takes minutes; the routing trace shows that it runs.
TEST_F(Interrupted, ByASecondSignalWhichGivesUpTheStep) {
  std::vector<Json> lines;
  for (int i = 0; i < 40; ++i) {
    std::vector<int> tokens(2000);
    for (std::size_t k = 0; k < tokens.size(); ++k) tokens[k] = 300 + static_cast<int>((k * 7 + i) % 3000);
    lines.push_back({{"id", std::to_string(i)}, {"tokens", tokens}});
  }
  write_file(input_, jsonl(lines));
  const std::string trace = folder_.file("trace");
  RunningProgram program(
      command({"--trace-routing", trace, "--task", "score", "--set", "steps.max_rows=32768"}),
      {.environment = {{"COLIBRI_KERNELS", "scalar"}}});
  while (!(fs::exists(trace) && fs::file_size(trace) > 0) && !program.ended())
    std::this_thread::sleep_for(milliseconds{5});
  program.send(SIGTERM);
  ASSERT_TRUE(program.wait_for_err("stopping")) << program.err_so_far();
  ASSERT_FALSE(program.ended());
  program.send(SIGINT);
  const RunResult run = program.wait();
  EXPECT_EQ(run.status, 128 + SIGTERM) << run.err;
  EXPECT_TRUE(contains(run.err, "--resume")) << run.err;
  EXPECT_FALSE(contains(run.err, "tokens/s")) << "the step was not finished: " << run.err;
  EXPECT_EQ(lines_there(), 0U);
  EXPECT_TRUE(fs::exists(output_ + ".journal"));
}

// Results that nobody reads hold up what a second signal cancels; a third one waits for nothing.
TEST_F(Interrupted, ByAThirdSignalWhichWaitsForNothing) {
  const std::string pipe = folder_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const UniqueDescriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_EQ(::fcntl(reader.get(), F_SETPIPE_SZ, kPipeBytes), kPipeBytes);
  write_file(input_, jsonl({{{"id", "long"}, {"tokens", std::vector<int>(1000, 300)}}}));  // 8 KiB and more
  RunningProgram program({kColibriProgram, "batch", demo_model(), input_, "-o", pipe, "--task", "score"}, {});
  while (pipe_level(reader.get()) < kPipeBytes && !program.ended()) {
    std::this_thread::sleep_for(milliseconds{5});
  }
  program.send(SIGINT);
  ASSERT_TRUE(program.wait_for_err("stopping")) << program.err_so_far();
  program.send(SIGINT);
  ASSERT_TRUE(program.wait_for_err("giving up")) << program.err_so_far();
  ASSERT_FALSE(program.ended()) << program.err_so_far();
  program.send(SIGINT);
  EXPECT_EQ(program.wait().status, 128 + SIGINT);
}

TEST_F(Interrupted, ByKillsAtRandomMoments) {
  std::mt19937 random(7);
  int kills = 0;
  bool mixed = false;  // whether a kill ever left some results and not all
  while (kills < kKills) {
    const std::size_t before = lines_there();
    RunningProgram program(command({"--resume"}), {});
    // Every other one dies soon after a result was written, however long a slow machine takes until then.
    if (kills % 2 == 1) wait_for_lines(program, before + 1);
    std::this_thread::sleep_for(milliseconds{random() % (kills % 2 == 1 ? 20 : 400)});
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
