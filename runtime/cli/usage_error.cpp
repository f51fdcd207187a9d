// Unknown flags and verbs are looked for first: a mistyped flag also makes CLI11 complain about
// whatever it took the flag's value for, which would hide the real mistake.
#include "runtime/cli/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <string_view>
#include <vector>

#include "io/text/nearest_name.hpp"

namespace colibri::cli {
namespace {

bool looks_like_flag(std::string_view word) { return word.size() > 1 && word.front() == '-'; }

// The flags of a verb as they are typed: "--weights", "-o".
std::vector<std::string> flags_of(const CLI::App& verb) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.emplace_back("--").append(name);
    for (const std::string& name : option->get_snames()) flags.emplace_back("-").append(name);
  }
  return flags;
}

std::string did_you_mean(const std::string& found, const std::vector<std::string>& names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string_view nearest = nearest_name(found, views);
  return nearest.empty() ? std::string() : "; did you mean " + std::string(nearest) + "?";
}

// "unknown flag: --wieghts; did you mean --weights?", or empty when no word was left over.
std::string left_over_sentence(const CLI::App& verb) {
  const std::vector<std::string> words = verb.remaining();
  for (const std::string& word : words) {
    if (!looks_like_flag(word)) continue;
    const std::string flag = word.substr(0, word.find('='));
    return "unknown flag: " + flag + did_you_mean(flag, flags_of(verb));
  }
  if (words.empty()) return {};
  const bool group = !verb.get_subcommands([](const CLI::App*) { return true; }).empty();
  return group ? unknown_verb_sentence(verb, words.front()) : "unexpected argument: " + words.front();
}

}  // namespace

std::string unknown_verb_sentence(const CLI::App& app, const std::string& verb) {
  std::vector<std::string> names;
  for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(known->get_name());
  }
  return "unknown verb: " + verb + did_you_mean(verb, names);
}

ExitStatus report_usage_error(const CLI::App& app, const CLI::ParseError& error, Console& console) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (chosen.empty()) {
    const std::vector<std::string> words = app.remaining();
    std::string sentence = "no verb given";
    if (!words.empty()) {
      sentence = looks_like_flag(words.front()) ? left_over_sentence(app)
                                                : unknown_verb_sentence(app, words.front());
    }
    console.error(sentence + ". Verbs are listed by: colibri --help");
    return ExitStatus::wrong_usage;
  }
  // Of a group of verbs, as far as it was named.
  const CLI::App* verb = chosen.back();
  std::string name = verb->get_name();
  while (!verb->get_subcommands().empty()) {
    verb = verb->get_subcommands().back();
    name += " " + verb->get_name();
  }
  std::string sentence = left_over_sentence(*verb);
  if (sentence.empty()) sentence = error.what();
  console.error(name + ": " + sentence + ". Usage and examples: colibri help " + name);
  return ExitStatus::wrong_usage;
}

}  // namespace colibri::cli
