// What the verbs have in common.
#include "runtime/cli/verb.hpp"

#include <CLI/CLI.hpp>
#include <csignal>

namespace colibri::cli {

ExitStatus exit_status_of_signal(int signal) noexcept {
  return signal == SIGINT ? ExitStatus::interrupted : ExitStatus::terminated;
}

void add_quiet_flag(CLI::App& verb, VerbContext& context) {
  verb.add_flag_callback(
      "-q,--quiet", [&context] { context.console.set_quiet(true); }, "Print errors and results only");
}

}  // namespace colibri::cli
