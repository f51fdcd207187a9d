// colibri convert: a Hugging Face checkpoint folder to a container.
#include "io/checkpoint/convert.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "io/checkpoint/weights_option.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/stop_signals.hpp"
#include "runtime/cli/value_checks.hpp"
#include "runtime/cli/verb_flags.hpp"
#include "topology/machine.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri::cli {
namespace {

constexpr std::uint64_t kMaxChunkBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kChunkStep = 4096;

struct ConvertArguments {
  std::string checkpoint;
  std::string output;
  std::string weights = "auto";
  std::string chunk = "128KiB";
  std::string stripe;
  std::uint32_t threads = 0;  // 0: as many as there are CPUs for
  bool force = false;
};

constexpr std::uint32_t kMostThreads = 1024;

// A thread a CPU, within the quota; one where that cannot be found out.
std::uint32_t default_threads() {
  const Result<Machine> machine = read_machine();
  return machine ? std::min(machine->default_threads(), kMostThreads) : 1;
}

// Empty when `text` is a chunk size; else what is wrong with it, as the user reads it.
std::string check_chunk(const std::string& text) {
  const Result<std::uint64_t> bytes = parse_bytes(text);
  if (!bytes) return bytes.status().to_string();
  if (*bytes < kChunkStep || *bytes > kMaxChunkBytes || *bytes % kChunkStep != 0) {
    return "the chunk size must be a multiple of 4KiB from 4KiB to 1GiB: " + text;
  }
  return {};
}

std::vector<std::filesystem::path> split_directories(const std::string& list) {
  std::vector<std::filesystem::path> directories;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) directories.emplace_back(item);
  return directories;
}

// Empty when `text` is a list of directories; what they are is checked by the conversion.
std::string check_stripe(const std::string& text) {
  if (text.empty() || text.front() == ',' || text.back() == ',' || text.find(",,") != std::string::npos) {
    return "expected directories separated by commas, as in /fast0/experts,/fast1/experts: " + text;
  }
  return {};
}

void print_summary(const ConvertReport& report, const std::string& output, Console& console) {
  console.print("converted " + report.spec.family + " to " + output + ": dense " +
                format_bytes(report.dense_bytes) + ", experts " + format_bytes(report.expert_bytes) + "\n");
}

ExitStatus run_convert(const ConvertArguments& arguments, VerbContext& context) {
  const auto signals = StopSignals::start();
  if (!signals) return context.fail(signals.status());
  const StopSignals& stop = **signals;

  Progress progress(context.console, "convert", ProgressUnit::bytes);
  ConvertOptions options;
  options.weights = arguments.weights;
  options.chunk_bytes = static_cast<std::uint32_t>(parse_bytes(arguments.chunk).value());
  options.force = arguments.force;
  options.stripe = split_directories(arguments.stripe);
  options.threads = arguments.threads > 0 ? arguments.threads : default_threads();
  options.log = [&context](const std::string& line) { context.console.info("convert: " + line); };
  options.progress = [&progress](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  options.cancelled = [&stop] { return stop.received() != 0; };

  const Result<ConvertReport> report = convert_checkpoint(arguments.checkpoint, arguments.output, options);
  progress.finish();
  if (!report && report.status().code() == ErrorCode::cancelled && stop.received() != 0) {
    context.console.error("convert: stopped by a signal; the same command goes on where this one ended");
    return exit_status_of_signal(stop.received());
  }
  if (!report) return context.fail(Status(report.status()).at("convert"));
  print_summary(*report, arguments.output, context.console);
  return ExitStatus::ok;
}

}  // namespace

void add_convert(Verb& program, VerbContext& context) {
  Verb verb = program.verb("convert", "Convert a Hugging Face checkpoint to a colibri container");
  verb.footer(
      "The checkpoint is checked as a whole before anything is written. Conversion needs less than\n"
      "1 GiB of memory; when it was interrupted, the same command goes on.\n\n"
      "Examples:\n"
      "  colibri convert ~/models/Qwen3-30B-A3B model\n"
      "  colibri convert ~/models/Mixtral-8x7B model --weights int8 --chunk 256KiB\n"
      "  colibri convert ~/models/Qwen3-30B-A3B model --weights int4\n"
      "  colibri convert ~/models/Qwen3-30B-A3B model --stripe /drive0/experts,/drive1/experts");
  auto arguments = std::make_shared<ConvertArguments>();
  verb.positional("CHECKPOINT_DIR", arguments->checkpoint, "Folder with config.json and safetensors files")
      .required();
  verb.positional("OUT_DIR", arguments->output, "Folder that becomes the container")
      .required()
      .check(check_not_empty, "DIR");
  verb.option("--weights", arguments->weights,
              "Stored precision: auto keeps bf16 as bf16 and anything else as f32; int8 takes 8.5 and int4\n"
              "4.5 bits a weight")
      .one_of(weights_choices(true))
      .show_default();
  verb.option("--chunk", arguments->chunk, "Unit of checksums in an expert record, a multiple of 4KiB")
      .check(check_chunk, "SIZE")
      .show_default();
  verb.option("--stripe", arguments->stripe,
              "Share the experts out over these directories, one a drive: an expert goes to number id % N; "
              "OUT_DIR gets links to the files")
      .check(check_stripe, "DIR,DIR,...");
  verb.option("--threads", arguments->threads, "Threads that pack weights; all CPUs unless given")
      .range(1U, kMostThreads);
  verb.flag("--force", arguments->force, "Replace what lies in OUT_DIR");
  add_quiet_flag(verb, context);
  verb.on_run(context, [arguments, &context] { return run_convert(*arguments, context); });
}

}  // namespace colibri::cli
