// fork, exec, and a pidfd to wait on.
#include "tests/cli/cli_runner.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace colibri::test {
namespace {

constexpr int kSignalStatusBase = 128;
constexpr int kCannotExec = 127;
constexpr std::chrono::milliseconds kLookAgain{5};

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::abort();
}

int memory_file(const char* name, const std::string& content) {
  const int file = ::memfd_create(name, MFD_CLOEXEC);
  if (file < 0) give_up("memfd_create");
  if (::write(file, content.data(), content.size()) != static_cast<ssize_t>(content.size())) give_up("write");
  if (::lseek(file, 0, SEEK_SET) != 0) give_up("lseek");
  return file;
}

std::string content_of(int file) {
  std::string text;
  char piece[1 << 14];
  ssize_t got = 0;
  while ((got = ::pread(file, piece, sizeof(piece), static_cast<off_t>(text.size()))) > 0) {
    text.append(piece, static_cast<std::size_t>(got));
  }
  return text;
}

std::vector<std::string> merged_environment(const RunOptions& options) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::size_t equals = text.find('=');
    variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : options.environment) {
    if (value.empty()) {
      variables.erase(name);
    } else {
      variables[name] = value;
    }
  }
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

RunningProgram::RunningProgram(const std::vector<std::string>& argv, RunOptions options)
    : options_(std::move(options)), deadline_(std::chrono::steady_clock::now() + options_.timeout) {
  const int in = options_.input.empty() ? ::open("/dev/null", O_RDONLY | O_CLOEXEC)
                                        : memory_file("input", options_.input);
  out_ = options_.output_file.empty()
             ? memory_file("output", {})
             : ::open(options_.output_file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  err_ = memory_file("errors", {});
  if (in < 0 || out_ < 0) give_up("open");
  // All memory is allocated before the fork: the test may have threads.
  const std::vector<std::string> environment = merged_environment(options_);
  const std::vector<char*> envp = pointers(environment);
  const std::vector<char*> args = pointers(argv);
  pid_ = ::fork();
  if (pid_ < 0) give_up("fork");
  if (pid_ == 0) {
    ::dup2(in, STDIN_FILENO);
    ::dup2(out_, STDOUT_FILENO);
    ::dup2(err_, STDERR_FILENO);
    const char* folder = options_.working_directory.c_str();
    if (*folder != '\0' && ::chdir(folder) != 0) ::_exit(kCannotExec);
    ::execvpe(args[0], args.data(), envp.data());
    ::_exit(kCannotExec);
  }
  ::close(in);
  // By number: the C library's header declares it for C only.
  pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  if (pidfd_ < 0) give_up("pidfd_open");
}

RunningProgram::~RunningProgram() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(pidfd_);
  ::close(out_);
  ::close(err_);
}

void RunningProgram::send(int signal) const { ::kill(pid_, signal); }
std::string RunningProgram::out_so_far() const { return content_of(out_); }
std::string RunningProgram::err_so_far() const { return content_of(err_); }

bool RunningProgram::ended_within(std::chrono::milliseconds time) const {
  pollfd ended{pidfd_, POLLIN, 0};
  return ::poll(&ended, 1, static_cast<int>(time.count())) > 0;
}

bool RunningProgram::wait_for_err(const std::string& text) const {
  while (err_so_far().find(text) == std::string::npos) {
    if (std::chrono::steady_clock::now() >= deadline_) return false;
    // One last look: it may have printed the text and ended since.
    if (ended_within(kLookAgain)) return err_so_far().find(text) != std::string::npos;
  }
  return true;
}

RunResult RunningProgram::wait() {
  RunResult result;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    if (ended_within(std::max(left, std::chrono::milliseconds{0}))) break;
    if (left.count() <= 0) {
      result.timed_out = true;
      ::kill(pid_, SIGKILL);
      break;
    }
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalStatusBase + WTERMSIG(status);
  // A file may be a device that never ends: whoever named it reads it.
  if (options_.output_file.empty()) result.out = out_so_far();
  result.err = err_so_far();
  return result;
}

RunResult run_program(const std::vector<std::string>& argv, const RunOptions& options) {
  return RunningProgram(argv, options).wait();
}

RunResult run_colibri(std::vector<std::string> arguments, const RunOptions& options) {
  arguments.insert(arguments.begin(), kColibriProgram);
  return run_program(arguments, options);
}

TemporaryFolder::TemporaryFolder() {
  std::string name = std::filesystem::temp_directory_path() / "colibri-test-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) give_up("mkdtemp");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // what cannot be removed is left to the system
  std::filesystem::remove_all(path_, ignored);
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string read_file(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

}  // namespace colibri::test
