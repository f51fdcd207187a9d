// A job that is killed again and again, and resumed each time, ends with the same file as one
// that was never disturbed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "io/text/result_file.hpp"
#include "tests/jobs/temporary_folder.hpp"
#include "tests/support/test_scale.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kLines = 4000;
const int kKills = testing::scaled(60, 15);
constexpr int kSkipped = 10;  // exit code of a job with nothing left to do

std::string result_line(std::uint64_t index) {
  const std::size_t padding = (index * 7919) % 400 + (index % 97 == 0 ? 30'000 : 0);
  return "{\"id\":\"" + std::to_string(index) + "\",\"index\":" + std::to_string(index) + ",\"text\":\"" +
         std::string(padding, static_cast<char>('a' + index % 26)) + "\"}\n";
}

// Answers what is not answered yet, in an order that differs from run to run. Never returns.
[[noreturn]] void run_job(const std::string& path, std::uint64_t seed, unsigned flush_every, bool in_order) {
  JobIdentity job;
  job.input_lines = kLines;
  auto file = ResultFile::open(path, ResultMode::resume, job, "");
  if (!file || !(*file)->begin().is_ok()) ::_exit(1);
  std::vector<std::uint64_t> todo;
  for (std::uint64_t i = 0; i < kLines; ++i) {
    if (!(*file)->completed().contains(i)) todo.push_back(i);
  }
  const bool had_work = !todo.empty();
  std::mt19937_64 random(seed);
  std::shuffle(todo.begin(), todo.end(), random);
  for (std::size_t i = 0; i < todo.size(); ++i) {
    if (!(*file)->append(todo[i], result_line(todo[i]), todo[i] % 3 == 0).is_ok()) ::_exit(2);
    if (random() % flush_every == 0 && !(*file)->flush().is_ok()) ::_exit(2);
  }
  ::_exit((*file)->finish(in_order).is_ok() ? (had_work ? 0 : kSkipped) : 3);
}

int wait_for(pid_t child) {
  int state = 0;
  while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  return state;
}

std::string whole_file() {
  std::string text;
  for (std::uint64_t i = 0; i < kLines; ++i) text += result_line(i);
  return text;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(ResultKill, RandomKillsLoseNothingAndWriteNothingTwice) {
  const TemporaryFolder folder;
  std::mt19937_64 random(2024);
  int kills = 0;
  for (int run = 0; kills < kKills; ++run) {
    ASSERT_LT(run, 10 * kKills) << "the job ends before it can be killed";
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) run_job(folder.path("out"), static_cast<std::uint64_t>(run), 300, true);
    // A whole job takes about 150 ms on an idle disk: kills hit every part of it, sorting included.
    ::usleep(static_cast<useconds_t>(random() % 100'000));
    ::kill(child, SIGKILL);
    const int state = wait_for(child);
    if (WIFSIGNALED(state)) {
      ++kills;
      continue;
    }
    ASSERT_TRUE(WIFEXITED(state) && (WEXITSTATUS(state) == 0 || WEXITSTATUS(state) == kSkipped)) << state;
    ASSERT_EQ(folder.read("out"), whole_file());
    if (WEXITSTATUS(state) == 0) std::filesystem::remove(folder.path("out"));  // begin anew
  }
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) run_job(folder.path("out"), 1, 300, true);
  const int state = wait_for(child);
  ASSERT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) != 1 && WEXITSTATUS(state) < 11) << state;
  EXPECT_EQ(folder.read("out"), whole_file());
  EXPECT_FALSE(folder.exists("out.journal"));
  EXPECT_FALSE(folder.exists("out.sorted"));
}

// A size limit kills inside a write, at any byte that we choose.
TEST(ResultKill, KillsInsideAWrite) {
  const TemporaryFolder folder;
  std::mt19937_64 random(7);
  std::size_t limit = 1;
  int kills = 0;
  for (int run = 0; run < 400; ++run) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      rlimit small{limit, limit};
      const rlimit no_core{0, 0};
      ::setrlimit(RLIMIT_CORE, &no_core);
      ::setrlimit(RLIMIT_FSIZE, &small);
      run_job(folder.path("out"), static_cast<std::uint64_t>(run), 16, false);
    }
    const int state = wait_for(child);
    if (WIFEXITED(state)) {
      ASSERT_EQ(WEXITSTATUS(state), 0);
      break;
    }
    ASSERT_EQ(WTERMSIG(state), SIGXFSZ);
    ++kills;
    limit += 1 + random() % 40'000;
  }
  EXPECT_GE(kills, 50);
  EXPECT_EQ(sorted_lines(folder.read("out")), sorted_lines(whole_file()));
  EXPECT_FALSE(folder.exists("out.journal"));
}

}  // namespace
}  // namespace colibri
