// The colibri program: reads the command line, runs the verb that it names.
//
// Exit status: 0 all well, 1 the job failed, 2 wrong usage, 3 some lines failed, 130 and 143
// stopped by SIGINT and SIGTERM. Verbs are listed in command_line.cpp, one line each.
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include "runtime/cli/command_line.hpp"

namespace colibri::cli {
namespace {

// What a verb returned, unless its results could not be written.
int run_program(int argc, const char* const* argv) {
  Console console;
  ExitStatus status = ExitStatus::job_failed;
  try {
    status = run_command_line(argc, argv, console);
  } catch (const std::exception& error) {
    console.error(std::string("internal: an unexpected failure; please report it: ") + error.what());
  }
  if (const Status written = console.flush(); !written) {
    console.error(written);
    if (status == ExitStatus::ok) status = ExitStatus::job_failed;
  }
  return static_cast<int>(status);
}

}  // namespace
}  // namespace colibri::cli

int main(int argc, char** argv) {
  // A reader of our output that has gone and a limit on file sizes are failures of a write like a full
  // disk: with a sentence and a status, not by a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  return colibri::cli::run_program(argc, argv);
}
