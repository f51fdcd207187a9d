// colibri.1: the help of all verbs in the language of man, and what no help says: environment and
// files.
#include <string>

#include "runtime/cli/pages/command_tree.hpp"

namespace colibri::cli {
namespace {

// Text as man prints it: no hyphen becomes a dash, no line is taken for a request.
std::string roff_escaped(const std::string& text) {
  std::string safe = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  safe = replaced(replaced(safe, "'", "\\(aq"), "^", "\\(ha");
  safe = replaced(replaced(safe, "`", "\\(ga"), "~", "\\(ti");
  if (safe.starts_with('.')) safe.insert(0, "\\&");
  return safe;
}

std::string bold(const std::string& text) { return "\\fB" + roff_escaped(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + roff_escaped(text) + "\\fR"; }

std::string option_entry(const OptionPage& option) {
  std::string names;
  for (const std::string& name : option.names) {
    names += (names.empty() ? "" : ", ") + (name.starts_with('-') ? bold(name) : italic(name));
  }
  if (!option.value.empty() && option.names.front().starts_with('-')) {
    names +=
        " " + (option.choices.empty() ? italic(option.value) : roff_escaped(joined(option.choices, "|")));
  }
  std::string text = ".TP\n" + names + "\n" + roff_escaped(option.description);
  if (option.required && option.names.front().starts_with('-')) text += " (required)";
  if (!option.default_value.empty()) text += " (default: " + roff_escaped(option.default_value) + ")";
  return text + "\n";
}

std::string lines_as_they_are(const std::vector<std::string>& lines) {
  std::string text = ".PP\n.nf\n";
  for (const std::string& line : lines) text += roff_escaped(line) + "\n";
  return text + ".fi\n";
}

std::string verb_section(const VerbPage& verb) {
  const std::string name = "colibri " + joined(verb.path);
  std::string text = ".SS " + roff_escaped(joined(verb.path)) + "\n" + roff_escaped(verb.description) + ".\n";
  text += ".PP\n" + bold(name) + " " + roff_escaped(verb.usage) + "\n";
  for (const OptionPage& positional : verb.positionals) text += option_entry(positional);
  for (const OptionPage& option : verb.options) text += option_entry(option);
  if (!verb.notes.empty()) text += lines_as_they_are(verb.notes);
  return text;
}

constexpr const char* kExitStatus = R"(.SH EXIT STATUS
.TP
0
Everything was done.
.TP
1
The job failed: model, files, memory, disk.
.TP
2
Wrong usage.
.TP
3
Some lines or rows have an error instead of a result.
.TP
130, 143
Stopped by SIGINT or SIGTERM. What had begun was finished; a batch can be resumed.
)";

constexpr const char* kEnvironment = R"(.SH ENVIRONMENT
.TP
.B COLIBRI_KERNELS
Which kernels are used: avx512, avx2 or scalar; the best that the processor supports when it is not set.
.TP
.B XDG_CACHE_HOME
With it, jobs leave in $XDG_CACHE_HOME/colibri what they learned about models, unless \-\-state\-dir says otherwise.
.TP
.BI COLIBRI_ PATH
Any value of the pipeline by its path, in capitals and with _ for the dots: COLIBRI_MEMORY_EXPERTS=25% is
memory.experts. Options of the command line go before variables, and these before the file.
)";

constexpr const char* kFiles = R"(.SH FILES
.TP
.I MODEL
A container, as colibri convert writes it: model_spec.json, model.bin, experts.bin, manifest.json and the files of
the tokenizer. Nothing is written into it afterwards.
.TP
.I REQUESTS
Requests, a JSON object a line.
.TP
.I pipeline.yaml
A pipeline; colibri inspect \-\-markdown prints what it may say. Examples are installed with Colibri.
)";

}  // namespace

std::string manual_page(const VerbPage& program, const std::string& version) {
  std::string text = ".TH COLIBRI 1 \"\" \"colibri " + version + "\" \"User Commands\"\n";
  text += ".SH NAME\ncolibri \\- batch inference for mixture\\-of\\-experts models\n";
  text += ".SH SYNOPSIS\n" + bold("colibri") + " " + roff_escaped(program.usage) + "\n";
  text += ".SH DESCRIPTION\n" + roff_escaped(program.description) +
          "\nEach verb does one thing; the same text is printed by colibri help " + italic("VERB") + ".\n";
  text += ".SH OPTIONS\n";
  for (const OptionPage& option : program.options) text += option_entry(option);
  text += ".SH VERBS\n";
  for (const VerbPage* verb : all_verbs(program)) {
    if (!verb->path.empty()) text += verb_section(*verb);
  }
  text += std::string(kExitStatus) + kEnvironment + kFiles;
  text += ".SH EXAMPLES\n";
  for (const VerbPage* verb : all_verbs(program)) {
    if (!verb->examples.empty()) text += lines_as_they_are(verb->examples);
  }
  return text;
}

}  // namespace colibri::cli
