// What the verbs have in common.
#include "runtime/cli/verb.hpp"

#include <csignal>

#include "runtime/cli/verb_flags.hpp"

namespace colibri::cli {

ExitStatus exit_status_of_signal(int signal) noexcept {
  return signal == SIGINT ? ExitStatus::interrupted : ExitStatus::terminated;
}

void add_quiet_flag(Verb& verb, VerbContext& context) {
  verb.on_flag(
      "-q,--quiet", [&context] { context.console.set_quiet(true); }, "Print errors and results only");
}

}  // namespace colibri::cli
