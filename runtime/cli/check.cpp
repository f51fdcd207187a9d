// colibri check: every mistake of a pipeline file at once, its effective values, its drawing.
#include <CLI/CLI.hpp>
#include <colibri/registry.hpp>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cli/pipeline_flags.hpp"
#include "runtime/cli/verb.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri::cli {
namespace {

struct CheckArguments {
  PipelineFlags pipeline;
  bool dump = false;
  bool dot = false;
};

ExitStatus run_check(const CheckArguments& arguments, VerbContext& context) {
  const Registry registry = builtin_registry();
  const std::vector<const StageInfo*> kinds = registry.infos();
  const Result<LoadedPipeline> loaded = load_pipeline(arguments.pipeline, kinds);
  if (!loaded) return context.fail(Status(loaded.status()).at("check"));
  const std::vector<std::string>& problems = loaded->problems.lines;
  if (!problems.empty()) {
    // As compilers print them, so that editors find the places.
    for (const std::string& problem : problems) context.console.write_report(problem + "\n");
    context.console.error("check: problems in " + arguments.pipeline.file + ": " +
                          std::to_string(problems.size()));
    return ExitStatus::job_failed;
  }
  if (arguments.dump) context.console.print(dump_pipeline(loaded->spec, kinds));
  if (arguments.dot) context.console.print(draw_pipeline_dot(loaded->spec, kinds));
  if (!arguments.dump && !arguments.dot) context.console.print("ok: " + arguments.pipeline.file + "\n");
  return ExitStatus::ok;
}

}  // namespace

void add_check(CLI::App& app, VerbContext& context) {
  CLI::App* verb = app.add_subcommand("check", "Check a pipeline file");
  verb->footer(
      "Examples:\n"
      "  colibri check configs/batch.yaml\n"
      "  colibri check configs/batch.yaml --set stages.fetch.lanes=16 --dump\n"
      "  colibri check configs/batch.yaml --dot | dot -Tsvg -o pipeline.svg");
  auto arguments = std::make_shared<CheckArguments>();
  verb->add_option("FILE", arguments->pipeline.file, "The pipeline file")->required();
  CLI::Option* dump =
      verb->add_flag("--dump", arguments->dump, "Print each effective value and where it came from");
  verb->add_flag("--dot", arguments->dot, "Print the graph in Graphviz's language")->excludes(dump);
  add_pipeline_setting_flags(*verb, arguments->pipeline);
  verb->callback([arguments, &context] {
    context.run = [arguments, &context] { return run_check(*arguments, context); };
  });
}

}  // namespace colibri::cli
