// What a wrong command line is told: what was wrong, the nearest right name, where the help is.
#pragma once

#include "runtime/cli/verb.hpp"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace colibri::cli {

// Reports why `app` could not parse its command line. Always wrong_usage.
ExitStatus report_usage_error(const CLI::App& app, const CLI::ParseError& error, Console& console);

// The sentence for a verb that does not exist, with the nearest one that does.
std::string unknown_verb_sentence(const CLI::App& app, const std::string& verb);

}  // namespace colibri::cli
