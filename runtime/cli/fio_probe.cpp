// fio as a child, without a shell; its report is read through a pipe.
#include "runtime/cli/fio_probe.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "io/text/json_document.hpp"

extern char** environ;

namespace colibri::cli {
namespace {

constexpr int kPollMilliseconds = 50;
constexpr std::size_t kMaxOutput = 4U << 20;

struct ChildOutput {
  std::string text;
  int status = 0;  // of waitpid
};

Status not_run(const std::string& why) {
  return {ErrorCode::io, "fio was not run: " + why + "; leave it out with --no-fio"};
}

// Signals that stop us are blocked here; a child must get them.
void unblock_signals(posix_spawnattr_t& attributes) {
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
}

Result<ChildOutput> run(const std::vector<std::string>& arguments, const std::function<bool()>& cancelled) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return not_run("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  unblock_signals(attributes);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  ChildOutput output;
  bool stopped = false;
  for (bool open = error == 0; open;) {
    pollfd readable{ends[0], POLLIN, 0};
    if (::poll(&readable, 1, kPollMilliseconds) > 0) {
      char bytes[4096];
      const ssize_t got = ::read(ends[0], bytes, sizeof bytes);
      open = got > 0 || (got < 0 && errno == EINTR);
      if (got > 0 && output.text.size() < kMaxOutput)
        output.text.append(bytes, static_cast<std::size_t>(got));
    }
    if (!stopped && cancelled && cancelled()) {
      stopped = true;
      ::kill(child, SIGTERM);
    }
  }
  ::close(ends[0]);
  if (error != 0) return not_run(std::generic_category().message(error));
  while (::waitpid(child, &output.status, 0) < 0 && errno == EINTR) {
  }
  if (stopped) return Status(ErrorCode::cancelled, "measuring was stopped");
  return output;
}

}  // namespace

std::optional<std::string> fio_version() {
  const Result<ChildOutput> output = run({"fio", "--version"}, {});
  if (!output || output->status != 0 || !output->text.starts_with("fio-")) return std::nullopt;
  return output->text.substr(0, output->text.find_first_of("\r\n"));
}

Result<double> rate_of_fio_json(const std::string& text) {
  // Notes may stand before the report.
  const std::size_t begin = text.find("\n{");
  const bool whole = text.starts_with("{");
  if (!whole && begin == std::string::npos) return not_run("it printed no report: " + text.substr(0, 200));
  const std::string report = whole ? text : text.substr(begin + 1);
  COLIBRI_ASSIGN_OR_RETURN(const JsonValue json, parse_json(report));
  const JsonValue* jobs = json.find("jobs");
  double rate = 0;
  if (jobs != nullptr && jobs->array() != nullptr && !jobs->array()->empty()) {
    const JsonValue* read = jobs->array()->front().find("read");
    const JsonValue* bytes = read != nullptr ? read->find("bw_bytes") : nullptr;
    if (bytes != nullptr && bytes->to_double(rate) && rate > 0) return rate;
  }
  return not_run("its report has no jobs[0].read.bw_bytes");
}

Result<double> fio_read_rate(const FioProbe& probe) {
  std::string files;
  for (const std::filesystem::path& file : probe.files) {
    files += files.empty() ? "" : ":";
    for (const char c : file.string()) files += c == ':' ? std::string("\\:") : std::string(1, c);
  }
  const auto milliseconds = [](std::chrono::milliseconds time) {
    return std::to_string(time.count()) + "ms";
  };
  std::vector<std::string> arguments = {"fio",
                                        "--name=colibri",
                                        "--filename=" + files,
                                        "--readonly",
                                        "--rw=randread",
                                        "--norandommap",
                                        "--bs=" + std::to_string(probe.read_bytes),
                                        "--direct=" + std::string(probe.direct ? "1" : "0"),
                                        "--time_based",
                                        "--runtime=" + milliseconds(probe.duration),
                                        "--ramp_time=" + milliseconds(probe.duration / 5),
                                        "--randseed=" + std::to_string(probe.seed),
                                        "--output-format=json"};
  if (probe.io_uring) {
    arguments.insert(arguments.end(), {"--ioengine=io_uring", "--iodepth=" + std::to_string(probe.depth)});
  } else {
    arguments.insert(arguments.end(), {"--ioengine=psync", "--thread", "--group_reporting",
                                       "--numjobs=" + std::to_string(probe.depth)});
  }
  COLIBRI_ASSIGN_OR_RETURN(const ChildOutput output, run(arguments, probe.cancelled));
  if (output.status != 0) return not_run("it failed: " + output.text.substr(0, 200));
  return rate_of_fio_json(output.text);
}

}  // namespace colibri::cli
