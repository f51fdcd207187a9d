// Completion for bash 4 and later, without the bash-completion package.
#include <string>

#include "runtime/cli/pages/command_tree.hpp"

namespace colibri::cli {
namespace {

// What is asked for: words that the shell splits, or the shell's own names of files.
constexpr const char* kFunction = R"(_colibri() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} path="" word words=""
  COMPREPLY=()
  # --option=value comes as three words.
  [[ $current == "=" ]] && current=""
  if [[ $previous == "=" ]] && ((COMP_CWORD >= 2)); then previous=${COMP_WORDS[COMP_CWORD - 2]}; fi
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$path/$word" in
@PATHS@    esac
  done
  case "$path $previous" in
@VALUES@  esac
  if [[ -z $words && $current == -* ]]; then
    case "$path" in
@OPTIONS@    esac
  elif [[ -z $words ]]; then
    case "$path" in
@VERBS@    esac
  fi
  if [[ -n $words && $words != FILES ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    compopt -o default 2>/dev/null
  fi
}
complete -F _colibri colibri
)";

std::string case_line(const std::string& pattern, const std::string& command, int indent) {
  return std::string(static_cast<std::size_t>(indent), ' ') + pattern + ") " + command + " ;;\n";
}

}  // namespace

std::string bash_completion(const VerbPage& program) {
  std::string paths, values, options, verbs;
  for (const VerbPage* verb : all_verbs(program)) {
    // "/bench/disk"; empty for the program.
    std::string path;
    for (const std::string& name : verb->path) path += "/" + name;
    if (!path.empty()) paths += case_line(path, "path=" + path, 6);
    std::string names;
    for (const OptionPage& option : verb->options) {
      names += (names.empty() ? "" : " ") + joined(option.names);
      if (option.value.empty()) continue;
      std::string patterns;
      for (const std::string& name : option.names) {
        patterns += std::string(patterns.empty() ? "" : "|") + "\"" + path + " " + name + "\"";
      }
      const std::string words = option.choices.empty() ? "FILES" : joined(option.choices);
      values += case_line(patterns, "words=\"" + words + "\"", 4);
    }
    options += case_line("\"" + path + "\"", "words=\"" + names + "\"", 6);
    if (verb->verbs.empty()) continue;
    std::string below;
    for (const VerbPage& one : verb->verbs) below += (below.empty() ? "" : " ") + one.path.back();
    verbs += case_line("\"" + path + "\"", "words=\"" + below + "\"", 6);
    // The verb that is to be explained.
    if (path.empty()) verbs += case_line("/help", "words=\"" + below + "\"", 6);
  }
  std::string text = kFunction;
  text = replaced(replaced(text, "@PATHS@", paths), "@VALUES@", values);
  return "# Completion of colibri for bash.\n" +
         replaced(replaced(text, "@OPTIONS@", options), "@VERBS@", verbs);
}

}  // namespace colibri::cli
