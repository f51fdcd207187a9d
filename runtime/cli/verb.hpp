// A verb of the program: one file each, one function that declares it, one line in command_line.cpp.
//
// add_NAME declares the verb's flags, help and examples (verb_flags.hpp), and what is to be done, which
// is put into the context when the command line names the verb. Nothing runs while the command line is read,
// so a wrong flag is reported before any work. A verb returns an exit status and never calls exit.
#pragma once

#include <functional>
#include <string>

#include "io/status.hpp"
#include "runtime/cli/console.hpp"

namespace colibri::cli {

class Verb;

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
void add_quiet_flag(Verb& verb, VerbContext& context);

void add_bench(Verb& program, VerbContext& context);
void add_convert(Verb& program, VerbContext& context);
void add_inspect(Verb& program, VerbContext& context);
void add_replay(Verb& program, VerbContext& context);
void add_stage(Verb& program, VerbContext& context);
void add_synth(Verb& program, VerbContext& context);
void add_verify(Verb& program, VerbContext& context);
void add_tokenize(Verb& program, VerbContext& context);
void add_check(Verb& program, VerbContext& context);
void add_batch(Verb& program, VerbContext& context);
void add_run(Verb& program, VerbContext& context);
void add_generate(Verb& program, VerbContext& context);
void add_perplexity(Verb& program, VerbContext& context);
void add_plan(Verb& program, VerbContext& context);
void add_trace(Verb& program, VerbContext& context);
void add_version(Verb& program, VerbContext& context);

}  // namespace colibri::cli
