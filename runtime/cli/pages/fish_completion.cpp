// Completion for fish: one line an option, shown after its verb.
#include <string>

#include "runtime/cli/pages/command_tree.hpp"

namespace colibri::cli {
namespace {

// The words after the program are these, and perhaps more: options come after verbs.
constexpr const char* kCondition = R"(# Completion of colibri for fish.
function __colibri_after
    set -l words (commandline -opc)
    test (count $words) -gt (count $argv); or return 1
    for i in (seq (count $argv))
        test $words[(math $i + 1)] = $argv[$i]; or return 1
    end
end
function __colibri_at
    test (count (commandline -opc)) -eq (math (count $argv) + 1); and __colibri_after $argv
end
)";

std::string quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string line(const std::string& condition, const std::string& what, const std::string& description) {
  std::string text = "complete -c colibri";
  if (!condition.empty()) text += " -n " + quoted(condition);
  return text + " " + what + " -d " + quoted(description) + "\n";
}

std::string option_line(const std::string& condition, const OptionPage& option) {
  std::string what;
  for (const std::string& name : option.names) {
    if (!what.empty()) what += " ";
    what += name.starts_with("--") ? "-l " + name.substr(2) : "-s " + name.substr(1);
  }
  if (!option.choices.empty()) {
    what += " -x -a " + quoted(joined(option.choices));
  } else if (!option.value.empty()) {
    what += " -r -F";
  }
  return line(condition, what, option.description);
}

}  // namespace

std::string fish_completion(const VerbPage& program) {
  std::string text = kCondition;
  for (const VerbPage* verb : all_verbs(program)) {
    const std::string words = joined(verb->path);
    for (const VerbPage& below : verb->verbs) {
      text += line("__colibri_at " + words, "-f -a " + below.path.back(), below.description);
    }
    if (verb->path == std::vector<std::string>{"help"}) {
      for (const VerbPage& one : program.verbs) {
        text += line("__colibri_at help", "-f -a " + one.path.back(), one.description);
      }
    }
    const std::string condition = (verb->verbs.empty() ? "__colibri_after " : "__colibri_at ") + words;
    for (const OptionPage& option : verb->options) text += option_line(condition, option);
  }
  return text;
}

}  // namespace colibri::cli
