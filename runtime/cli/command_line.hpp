// The command line of the program as data: every verb with its flags. The program parses with it;
// the manual page and the shells' completion are written from it (pages/).
#pragma once

#include "runtime/cli/verb.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace colibri::cli {

// Declares everything on an empty `app`; `context` must outlive it.
void declare_command_line(CLI::App& app, VerbContext& context);

// Parses the command line and runs the verb that it names.
ExitStatus run_command_line(int argc, const char* const* argv, Console& console);

}  // namespace colibri::cli
