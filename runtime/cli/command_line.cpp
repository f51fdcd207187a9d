// The verbs of the program, one line each, and what it says about itself.
#include "runtime/cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cli/usage_error.hpp"

namespace colibri::cli {
namespace {

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
  add_convert(app, context);
  add_inspect(app, context);
  add_replay(app, context);
  add_stage(app, context);
  add_synth(app, context);
  add_verify(app, context);
  add_plan(app, context);
  add_batch(app, context);
  add_run(app, context);
  add_generate(app, context);
  add_perplexity(app, context);
  add_trace(app, context);
  add_tokenize(app, context);
  add_check(app, context);
  add_bench(app, context);
  add_version(app, context);
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
