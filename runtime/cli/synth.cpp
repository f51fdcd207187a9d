// colibri synth: a container of real shape with random weights.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "io/checkpoint/synthetic_model.hpp"
#include "io/checkpoint/weights_option.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/stop_signals.hpp"
#include "runtime/cli/value_checks.hpp"
#include "runtime/cli/verb.hpp"
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

void add_synth(CLI::App& app, VerbContext& context) {
  CLI::App* verb =
      app.add_subcommand("synth", "Write a container of real shape with random weights, to measure with");
  verb->footer(
      "Shapes:\n" + shape_list() +
      "\nThe model takes token ids only, and what it answers means nothing. Experts are copies of a few\n"
      "random ones.\n\n"
      "Examples:\n"
      "  colibri synth --shape olmoe-1b-7b --weights int8 model\n"
      "  colibri synth --shape qwen3-30b-a3b --layers 8 --weights bf16 --skew 0.5 model");
  auto arguments = std::make_shared<SynthArguments>();
  SyntheticModelOptions& options = arguments->options;
  verb->add_option("OUT_DIR", arguments->output, "Folder that becomes the container")
      ->required()
      ->check(CLI::Validator(check_not_empty, "DIR"));
  verb->add_option("--shape", options.shape, "Whose shape: see below")->required();
  verb->add_option("--layers", options.layers, "Number of layers; the shape's own when left out")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--weights", options.weights, "Stored precision")
      ->check(CLI::IsMember(weights_choices(false)))
      ->capture_default_str();
  verb->add_option("--skew", options.skew, "How unevenly experts are used: 0 evenly, 1 very unevenly")
      ->check(CLI::Range(0.0, 4.0))
      ->capture_default_str();
  verb->add_option("--seed", options.seed, "The same arguments give the same files")
      ->check(CLI::Validator(check_is_unsigned, "INTEGER"))
      ->capture_default_str();
  verb->add_flag("--force", options.force, "Replace what lies in OUT_DIR");
  add_quiet_flag(*verb, context);
  verb->callback([arguments, &context] {
    context.run = [arguments, &context] { return run_synth(*arguments, context); };
  });
}

}  // namespace colibri::cli
