// colibri synth: a container of real shape with random weights.
#include <memory>
#include <string>

#include "io/checkpoint/synthetic_model.hpp"
#include "io/checkpoint/weights_option.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/stop_signals.hpp"
#include "runtime/cli/value_checks.hpp"
#include "runtime/cli/verb_flags.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri::cli {
namespace {

struct SynthArguments {
  SyntheticModelOptions options;
  std::string output;
};

ExitStatus run_synth(SynthArguments& arguments, VerbContext& context) {
  const auto signals = StopSignals::start();
  if (!signals) return context.fail(signals.status());
  const StopSignals& stop = **signals;
  Progress progress(context.console, "synth", ProgressUnit::bytes);
  arguments.options.progress = [&progress](std::uint64_t done, std::uint64_t total) {
    progress.update(done, total);
  };
  arguments.options.cancelled = [&stop] { return stop.received() != 0; };
  const Result<ConvertReport> report = write_synthetic_model(arguments.output, arguments.options);
  progress.finish();
  if (!report && report.status().code() == ErrorCode::cancelled && stop.received() != 0) {
    context.console.error("synth: stopped by a signal; the same command goes on where this one ended");
    return exit_status_of_signal(stop.received());
  }
  if (!report) return context.fail(Status(report.status()).at("synth"));
  context.console.print("wrote " + arguments.options.shape + " with random weights to " + arguments.output +
                        ": dense " + format_bytes(report->dense_bytes) + ", experts " +
                        format_bytes(report->expert_bytes) + "\n");
  return ExitStatus::ok;
}

std::string shape_list() {
  std::string text;
  for (const SyntheticShape& shape : synthetic_shapes()) {
    text += "  " + std::string(shape.name) + "\n      " + std::string(shape.help) + "\n";
  }
  return text;
}

}  // namespace

void add_synth(Verb& program, VerbContext& context) {
  Verb verb = program.verb("synth", "Write a container of real shape with random weights, to measure with");
  verb.footer(
      "Shapes:\n" + shape_list() +
      "\nThe model takes token ids only, and what it answers means nothing. Experts are copies of a few\n"
      "random ones.\n\n"
      "Examples:\n"
      "  colibri synth --shape olmoe-1b-7b --weights int8 model\n"
      "  colibri synth --shape qwen3-30b-a3b --layers 8 --weights bf16 --skew 0.5 model");
  auto arguments = std::make_shared<SynthArguments>();
  SyntheticModelOptions& options = arguments->options;
  verb.positional("OUT_DIR", arguments->output, "Folder that becomes the container")
      .required()
      .check(check_not_empty, "DIR");
  verb.option("--shape", options.shape, "Whose shape: see below").required();
  verb.option("--layers", options.layers, "Number of layers; the shape's own when left out").range(1, 1024);
  verb.option("--weights", options.weights, "Stored precision").one_of(weights_choices(false)).show_default();
  verb.option("--skew", options.skew, "How unevenly experts are used: 0 evenly, 1 very unevenly")
      .range(0.0, 4.0)
      .show_default();
  verb.option("--seed", options.seed, "The same arguments give the same files")
      .check(check_is_unsigned, "INTEGER")
      .show_default();
  verb.flag("--force", options.force, "Replace what lies in OUT_DIR");
  add_quiet_flag(verb, context);
  verb.on_run(context, [arguments, &context] { return run_synth(*arguments, context); });
}

}  // namespace colibri::cli
