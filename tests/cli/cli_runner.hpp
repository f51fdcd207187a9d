// Runs a program the way a shell would, without one: arguments, input, environment; what it
// printed and how it ended. The program of this build is kColibriProgram.
//
// Output goes to memory files, so a child never waits for its reader and what it has printed so
// far can be looked at while it runs. A child that outlives its limit is killed and reported.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace colibri::test {

inline constexpr const char* kColibriProgram = COLIBRI_PROGRAM;

struct RunOptions {
  std::string input;  // standard input; empty: /dev/null
  // Added to the environment of the test; an empty value removes the variable.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string working_directory;  // empty: that of the test
  std::string output_file;        // where standard output goes instead of RunResult::out
  std::chrono::milliseconds timeout{300000};
};

struct RunResult {
  int status = -1;  // exit status; 128 + the signal that ended it, as a shell says it
  bool timed_out = false;
  std::string out;
  std::string err;
};

// A child that runs. Killed by the destructor when nobody waited for it.
class RunningProgram {
 public:
  // Ends the test process when the program cannot be started at all.
  RunningProgram(const std::vector<std::string>& argv, RunOptions options);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t pid() const noexcept { return pid_; }
  void send(int signal) const;
  bool ended() const { return ended_within(std::chrono::milliseconds{0}); }
  std::string out_so_far() const;
  std::string err_so_far() const;
  // Waits until it has printed `text` on stderr, or ended, or its time is up; whether it was printed.
  bool wait_for_err(const std::string& text) const;
  RunResult wait();

 private:
  bool ended_within(std::chrono::milliseconds time) const;

  RunOptions options_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::chrono::steady_clock::time_point deadline_;
};

// argv[0] is the program: an absolute path, or a name that PATH finds.
RunResult run_program(const std::vector<std::string>& argv, const RunOptions& options = {});
// The colibri of this build.
RunResult run_colibri(std::vector<std::string> arguments, const RunOptions& options = {});

// A folder of its own under the test's temporary folder, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const noexcept { return path_; }
  // The path of `name` inside, which need not exist.
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write_file(const std::string& path, const std::string& content);
std::string read_file(const std::string& path);

}  // namespace colibri::test
