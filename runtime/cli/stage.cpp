// colibri stage: a container to a local drive.
#include <memory>
#include <string>

#include "io/container/copy_container.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/stop_signals.hpp"
#include "runtime/cli/verb_flags.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri::cli {
namespace {

struct StageArguments {
  std::string model;
  std::string folder;
  bool force = false;
};

ExitStatus run_stage(const StageArguments& arguments, VerbContext& context) {
  const auto signals = StopSignals::start();
  if (!signals) return context.fail(signals.status());
  const StopSignals& stop = **signals;
  Progress progress(context.console, "stage", ProgressUnit::bytes);
  CopyOptions options;
  options.force = arguments.force;
  options.log = [&context](const std::string& line) { context.console.info("stage: " + line); };
  options.progress = [&progress](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  options.cancelled = [&stop] { return stop.received() != 0; };
  const Result<CopyReport> report = copy_container(arguments.model, arguments.folder, options);
  progress.finish();
  if (!report && report.status().code() == ErrorCode::cancelled && stop.received() != 0) {
    context.console.error("stage: stopped by a signal; the same command goes on where this one ended");
    return exit_status_of_signal(stop.received());
  }
  if (!report) return context.fail(Status(report.status()).at("stage"));
  if (report->was_there) {
    context.console.print(arguments.folder +
                          " holds this model already; colibri verify compares its bytes\n");
    return ExitStatus::ok;
  }
  const std::string kept =
      report->kept_bytes > 0 ? ", " + format_bytes(report->kept_bytes) + " of them by a former run" : "";
  context.console.print("copied " + arguments.model + " to " + arguments.folder + ": " +
                        format_bytes(report->bytes) + kept + ", every checksum matches\n");
  return ExitStatus::ok;
}

}  // namespace

void add_stage(Verb& program, VerbContext& context) {
  Verb verb = program.verb("stage", "Copy a container to a local drive, verified");
  verb.footer(
      "For models on a network mount: experts are read at the speed of the drive that holds them. Free\n"
      "space is checked first, each chunk is compared with its checksum on the way, and the same command\n"
      "goes on where an interrupted one ended. Until it is complete the copy is no model.\n\n"
      "Examples:\n"
      "  colibri stage /mnt/models/qwen3 /fast/qwen3\n"
      "  colibri stage /mnt/models/qwen3 /fast/qwen3 && colibri batch /fast/qwen3 requests.jsonl -o "
      "out.jsonl");
  auto arguments = std::make_shared<StageArguments>();
  verb.positional("MODEL", arguments->model, "The container").required();
  verb.positional("DIR", arguments->folder, "Folder that becomes its copy").required();
  verb.flag("--force", arguments->force, "Replace what lies in DIR");
  add_quiet_flag(verb, context);
  verb.on_run(context, [arguments, &context] { return run_stage(*arguments, context); });
}

}  // namespace colibri::cli
