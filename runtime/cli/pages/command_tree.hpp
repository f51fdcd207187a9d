// What the manual page and the completions say, as plain data: verbs, options, values. Read from
// the declared command line, so that none of them lists anything by itself.
#pragma once

#include <string>
#include <vector>

namespace colibri::cli {

struct OptionPage {
  std::vector<std::string> names;    // "-o", "--output"; positionals: "MODEL"
  std::string value;                 // what stands for the value: "TEXT", "UINT"; empty: it takes none
  std::vector<std::string> choices;  // the values that there are; empty: any
  std::string default_value;         // empty: none, or not told
  std::string description;
  bool required = false;
  bool repeated = false;  // takes any number of values
};

struct VerbPage {
  std::vector<std::string> path;  // {"bench", "disk"}; empty: the program
  std::string description;
  std::string usage;               // "[OPTIONS] MODEL REQUESTS"
  std::vector<std::string> notes;  // lines of the help that follow the options, without the examples
  std::vector<std::string> examples;
  std::vector<OptionPage> options;
  std::vector<OptionPage> positionals;
  std::vector<VerbPage> verbs;
};

// The program with all its verbs.
VerbPage read_command_line();

// The verb and all below it, in the order of the help.
std::vector<const VerbPage*> all_verbs(const VerbPage& verb);

// "a b c"
std::string joined(const std::vector<std::string>& words, const std::string& separator = " ");
// `text` with `replacement` for each occurrence of `part`.
std::string replaced(std::string text, const std::string& part, const std::string& replacement);

// The pages themselves, whole files.
std::string manual_page(const VerbPage& program, const std::string& version);
std::string bash_completion(const VerbPage& program);
std::string zsh_completion(const VerbPage& program);
std::string fish_completion(const VerbPage& program);

}  // namespace colibri::cli
