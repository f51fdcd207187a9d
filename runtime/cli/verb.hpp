// A verb of the program: one file each, one function that declares it, one line in main.cpp.
//
// add_NAME declares the verb's flags, help and examples on the parser and, by a callback, puts
// what is to be done into the context. Nothing runs while the command line is read, so a wrong
// flag is reported before any work. A verb returns an exit status and never calls exit.
#pragma once

#include <functional>
#include <string>

#include "io/status.hpp"
#include "runtime/cli/console.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace colibri::cli {

enum class ExitStatus : int {
  ok = 0,
  job_failed = 1,
  wrong_usage = 2,
  some_lines_failed = 3,
  interrupted = 130,  // SIGINT
  terminated = 143,   // SIGTERM
};

// The status of a job that stopped because of `signal` (SIGINT or SIGTERM).
ExitStatus exit_status_of_signal(int signal) noexcept;

struct VerbContext {
  Console& console;
  std::function<ExitStatus()> run;  // set by the verb that the command line chose

  // Reports the failure of a job.
  ExitStatus fail(const Status& status) const {
    console.error(status);
    return ExitStatus::job_failed;
  }
};

// Declares `--quiet`, for verbs that report progress.
void add_quiet_flag(CLI::App& verb, VerbContext& context);

void add_bench(CLI::App& app, VerbContext& context);
void add_convert(CLI::App& app, VerbContext& context);
void add_inspect(CLI::App& app, VerbContext& context);
void add_replay(CLI::App& app, VerbContext& context);
void add_stage(CLI::App& app, VerbContext& context);
void add_synth(CLI::App& app, VerbContext& context);
void add_verify(CLI::App& app, VerbContext& context);
void add_tokenize(CLI::App& app, VerbContext& context);
void add_check(CLI::App& app, VerbContext& context);
void add_batch(CLI::App& app, VerbContext& context);
void add_run(CLI::App& app, VerbContext& context);
void add_generate(CLI::App& app, VerbContext& context);
void add_perplexity(CLI::App& app, VerbContext& context);
void add_plan(CLI::App& app, VerbContext& context);
void add_trace(CLI::App& app, VerbContext& context);
void add_version(CLI::App& app, VerbContext& context);

}  // namespace colibri::cli
