// The verbs of the program, one line each, what it says about itself, and what a wrong command line is told.
#include "runtime/cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/nearest_name.hpp"
#include "runtime/cli/verb_flags.hpp"

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

// The sentence for a verb that does not exist, with the nearest one that does.
std::string unknown_verb_sentence(const CLI::App& app, const std::string& verb) {
  std::vector<std::string> names;
  for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(known->get_name());
  }
  return "unknown verb: " + verb + did_you_mean(verb, names);
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

// Why `app` could not parse its command line: what was wrong, the nearest right name, where the help is.
// Unknown flags and verbs are looked for first: a mistyped flag also makes CLI11 complain about whatever it
// took the flag's value for, which would hide the real mistake.
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

void add_help(CLI::App& app, VerbContext& context) {
  CLI::App* verb = app.add_subcommand("help", "Explain a verb");
  verb->footer("Examples:\n  colibri help convert\n  colibri help bench disk");
  auto names = std::make_shared<std::vector<std::string>>();
  verb->add_option("VERB", *names, "The verb to explain; all of them are listed when it is left out");
  verb->callback([&app, &context, names] {
    context.run = [&app, &context, names] {
      if (names->empty()) {
        // Not app.help(): that would explain the verb that was parsed, which is this one.
        context.console.print(
            app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal));
        return ExitStatus::ok;
      }
      const CLI::App* explained = &app;
      std::string path;
      for (const std::string& name : *names) {
        path += (path.empty() ? "" : " ") + explained->get_name();
        const std::vector<const CLI::App*> found =
            explained->get_subcommands([&name](const CLI::App* known) { return known->get_name() == name; });
        if (found.empty()) {
          context.console.error(unknown_verb_sentence(*explained, name) + ". Verbs are listed by: " + path +
                                " --help");
          return ExitStatus::wrong_usage;
        }
        explained = found.front();
      }
      context.console.print(explained->help(path));
      return ExitStatus::ok;
    };
  });
}

void declare_verbs(CLI::App& app, VerbContext& context) {
  Verb program(app);
  add_convert(program, context);
  add_inspect(program, context);
  add_replay(program, context);
  add_stage(program, context);
  add_synth(program, context);
  add_verify(program, context);
  add_plan(program, context);
  add_batch(program, context);
  add_run(program, context);
  add_generate(program, context);
  add_perplexity(program, context);
  add_trace(program, context);
  add_tokenize(program, context);
  add_check(program, context);
  add_bench(program, context);
  add_version(program, context);
  add_help(app, context);
}

}  // namespace

void declare_command_line(CLI::App& app, VerbContext& context) {
  app.name("colibri");
  app.description("Batch inference for mixture-of-experts models whose experts do not fit in memory.");
  app.get_formatter()->column_width(34);
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  app.set_version_flag("--version", "colibri " COLIBRI_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  colibri convert ~/models/Qwen3-30B-A3B model --weights int8\n"
      "  colibri help convert");
  declare_verbs(app, context);
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) verb->group("Verbs");
}

ExitStatus run_command_line(int argc, const char* const* argv, Console& console) {
  CLI::App app;
  VerbContext context{console, {}};
  declare_command_line(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    console.print(std::string(version.what()) + "\n");
    return ExitStatus::ok;
  } catch (const CLI::CallForHelp&) {
    console.print(app.help());
    return ExitStatus::ok;
  } catch (const CLI::ParseError& error) {
    return report_usage_error(app, error, console);
  }
  return context.run();
}

}  // namespace colibri::cli
