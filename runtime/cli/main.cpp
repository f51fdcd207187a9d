// The colibri program: reads the command line, runs the verb that it names.
//
// Exit status: 0 all well, 1 the job failed, 2 wrong usage, 3 some lines failed, 130 and 143
// stopped by SIGINT and SIGTERM. Verbs are listed in declare_verbs, one line each.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cli/usage_error.hpp"
#include "runtime/cli/verb.hpp"

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

ExitStatus run_command_line(int argc, const char* const* argv, Console& console) {
  CLI::App app("Batch inference for mixture-of-experts models whose experts do not fit in memory.",
               "colibri");
  app.get_formatter()->column_width(34);
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  app.set_version_flag("--version", "colibri " COLIBRI_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  colibri convert ~/models/Qwen3-30B-A3B model --weights int8\n"
      "  colibri help convert");
  VerbContext context{console, {}};
  declare_verbs(app, context);
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) verb->group("Verbs");
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

// What a verb returned, unless its results could not be written.
int run_program(int argc, const char* const* argv) {
  Console console;
  ExitStatus status = ExitStatus::job_failed;
  try {
    status = run_command_line(argc, argv, console);
  } catch (const std::exception& error) {
    console.error(std::string("internal: an unexpected failure; please report it: ") + error.what());
  }
  if (const Status written = console.flush(); !written) {
    console.error(written);
    if (status == ExitStatus::ok) status = ExitStatus::job_failed;
  }
  return static_cast<int>(status);
}

}  // namespace
}  // namespace colibri::cli

int main(int argc, char** argv) {
  // A reader of our output that has gone and a limit on file sizes are failures of a write like a full
  // disk: with a sentence and a status, not by a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  return colibri::cli::run_program(argc, argv);
}
