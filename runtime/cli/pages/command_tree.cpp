// Reads the command line out of the parser.
#include "runtime/cli/pages/command_tree.hpp"

#include <CLI/CLI.hpp>
#include <sstream>
#include <utility>

#include "runtime/cli/command_line.hpp"

namespace colibri::cli {
namespace {

// The values between the braces of "TEXT:{auto,f32}"; none when there are no braces.
std::vector<std::string> choices_of(const std::string& type) {
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

// Help breaks long descriptions over lines, and indents what follows.
std::string one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

OptionPage read_option(const CLI::Option& option) {
  OptionPage page;
  for (const std::string& name : option.get_snames()) page.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) page.names.push_back("--" + name);
  if (option.get_positional()) page.names = {option.get_name(true)};
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() > 0) page.value = type.substr(0, type.find(':'));
  page.choices = choices_of(type);
  page.default_value = option.get_default_str();
  page.description = one_line(option.get_description());
  page.required = option.get_required();
  page.repeated = option.get_items_expected_max() > 1;
  return page;
}

// Splits what follows the options: "Examples:" and the indented lines after it, and all the rest.
void read_footer(const std::string& footer, VerbPage& page) {
  std::istringstream lines(footer);
  bool examples = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "Examples:") {
      examples = true;
    } else if (examples && line.starts_with("  ")) {
      page.examples.push_back(line.substr(2));
    } else {
      examples = false;
      page.notes.push_back(line);
    }
  }
  while (!page.notes.empty() && page.notes.back().empty()) page.notes.pop_back();
}

VerbPage read_verb(const CLI::App& app, std::vector<std::string> path = {}) {
  VerbPage page;
  page.path = std::move(path);
  page.description = app.get_description();
  read_footer(app.get_footer(), page);
  for (const CLI::Option* option : app.get_options()) {
    OptionPage read = read_option(*option);
    (option->get_positional() ? page.positionals : page.options).push_back(std::move(read));
  }
  if (!page.options.empty()) page.usage = "[OPTIONS]";
  for (const OptionPage& positional : page.positionals) {
    const std::string name = positional.names.front() + (positional.repeated ? "..." : "");
    page.usage += " " + (positional.required ? name : "[" + name + "]");
  }
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    std::vector<std::string> below = page.path;
    below.push_back(verb->get_name());
    page.verbs.push_back(read_verb(*verb, std::move(below)));
  }
  if (!page.verbs.empty()) page.usage += page.path.empty() ? " VERB" : " WHAT";
  return page;
}

}  // namespace

VerbPage read_command_line() {
  Console console;
  CLI::App app;
  VerbContext context{console, {}};
  declare_command_line(app, context);
  return read_verb(app);
}

std::vector<const VerbPage*> all_verbs(const VerbPage& verb) {
  std::vector<const VerbPage*> verbs = {&verb};
  for (const VerbPage& below : verb.verbs) {
    for (const VerbPage* found : all_verbs(below)) verbs.push_back(found);
  }
  return verbs;
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::string replaced(std::string text, const std::string& part, const std::string& replacement) {
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += replacement.size()) {
    text.replace(at, part.size(), replacement);
  }
  return text;
}

}  // namespace colibri::cli
