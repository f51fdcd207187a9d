// Completion for zsh: one function a verb, with the texts of the help.
#include <string>

#include "runtime/cli/pages/command_tree.hpp"

namespace colibri::cli {
namespace {

// Text inside '...[...]': brackets, colons and quotes mean something there.
std::string zsh_escaped(const std::string& text) {
  std::string safe = replaced(replaced(text, "\\", "\\\\"), "'", "'\\''");
  safe = replaced(replaced(safe, "[", "\\["), "]", "\\]");
  return replaced(safe, ":", "\\:");
}

std::string action_of(const OptionPage& option) {
  return option.choices.empty() ? "_files" : "(" + joined(option.choices) + ")";
}

// "'(-o --output)'{-o,--output}'[Results file]:TEXT:_files'"
std::string option_argument(const OptionPage& option) {
  std::string text = "'[" + zsh_escaped(option.description) + "]";
  if (!option.value.empty()) text += ":" + zsh_escaped(option.value) + ":" + action_of(option);
  text += "'";
  if (option.repeated) {
    return option.names.size() == 1 ? "'*'" + option.names.front() + text
                                    : "'*'{" + joined(option.names, ",") + "}" + text;
  }
  if (option.names.size() == 1) return option.names.front() + text;
  return "'(" + joined(option.names) + ")'{" + joined(option.names, ",") + "}" + text;
}

std::string function_name(const VerbPage& verb) {
  return verb.path.empty() ? "_colibri" : "_colibri_" + joined(verb.path, "_");
}

// Lists the verbs below one, with what they do.
std::string verb_list(const VerbPage& verb) {
  std::string text = function_name(verb) + "_verbs() {\n  local -a verbs=(\n";
  for (const VerbPage& below : verb.verbs) {
    text += "    '" + below.path.back() + ":" + zsh_escaped(below.description) + "'\n";
  }
  return text + "  )\n  _describe verb verbs\n}\n";
}

std::string function(const VerbPage& verb) {
  std::string text = function_name(verb) + "() {\n";
  std::string arguments;
  for (const OptionPage& option : verb.options) arguments += " \\\n    " + option_argument(option);
  if (verb.verbs.empty()) {
    const bool explains = verb.path == std::vector<std::string>{"help"};
    for (const OptionPage& positional : verb.positionals) {
      const std::string action = explains ? "_colibri_verbs" : action_of(positional);
      arguments += std::string(" \\\n    '") + (positional.repeated ? "*" : "") + ":" +
                   zsh_escaped(positional.names.front()) + ":" + action + "'";
    }
    return text + "  _arguments -s" + arguments + "\n}\n";
  }
  text += "  local state line\n  local -A opt_args\n  _arguments -C" + arguments +
          " \\\n    '1: :" + function_name(verb) + "_verbs' '*:: :->verb'\n";
  text += "  [[ $state == verb ]] || return\n  case $words[1] in\n";
  for (const VerbPage& below : verb.verbs) {
    text += "    " + below.path.back() + ") " + function_name(below) + " ;;\n";
  }
  return text + "  esac\n}\n" + verb_list(verb);
}

}  // namespace

std::string zsh_completion(const VerbPage& program) {
  std::string text = "#compdef colibri\n# Completion of colibri for zsh.\n";
  for (const VerbPage* verb : all_verbs(program)) text += function(*verb);
  return text + "_colibri \"$@\"\n";
}

}  // namespace colibri::cli
