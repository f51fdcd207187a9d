// colibri bench disk: the rate of the reader of experts over sizes and depths, fio's beside it.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "io/container/container.hpp"
#include "io/container/container_files.hpp"
#include "io/container/file_system.hpp"
#include "io/read/rate_probe.hpp"
#include "io/text/json_output.hpp"
#include "runtime/cli/fio_probe.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/scratch_file.hpp"
#include "runtime/cli/stop_signals.hpp"
#include "runtime/cli/verb_flags.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri::cli {
namespace {

constexpr std::uint64_t kLargestRead = std::uint64_t{64} << 20;

struct BenchArguments {
  std::string folder;
  std::string file_bytes = "1GiB";
  std::vector<std::string> sizes = {"128KiB", "512KiB", "1MiB", "2MiB", "8MiB"};
  std::vector<std::uint32_t> depths = {1, 4, 16, 32};
  std::uint32_t milliseconds = 1000;
  std::uint32_t rounds = 3;
  std::string backend = "auto";
  bool no_fio = false;
  bool json = false;
};

// A size and a depth: the rates of each round, ours and fio's in turn.
struct Cell {
  std::uint64_t read_bytes = 0;
  std::uint32_t depth = 0;
  std::vector<double> ours;
  std::vector<double> fio;
};

struct DiskBench {
  std::vector<std::filesystem::path> files;
  std::uint64_t file_bytes = 0;
  FileSystem file_system;
  std::string reader;  // how experts are read: "io_uring, O_DIRECT"
  std::optional<std::string> fio;
  std::vector<Cell> cells;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Of the ratios within rounds: what changes on the machine between rounds changes both.
double paired_ratio(const Cell& cell) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < cell.fio.size(); ++i) ratios.push_back(cell.ours[i] / cell.fio[i]);
  return median(ratios);
}

std::string check_read_size(const std::string& text) {
  const Result<std::uint64_t> bytes = parse_bytes(text);
  if (!bytes) return bytes.status().to_string();
  if (*bytes == 0 || *bytes % kReadAlignment != 0 || *bytes > kLargestRead) {
    return "a read must be a multiple of 4KiB up to 64MiB: " + text;
  }
  return {};
}

std::string check_file_size(const std::string& text) {
  const Result<std::uint64_t> bytes = parse_bytes(text);
  if (!bytes) return bytes.status().to_string();
  return *bytes > 0 ? std::string() : "the file must have bytes: " + text;
}

ReadKind kind_of(const std::string& name) {
  return name == "pread" ? ReadKind::pread : name == "io_uring" ? ReadKind::io_uring : ReadKind::automatic;
}

// "io_uring, O_DIRECT" of "io_uring, O_DIRECT, 16 lanes".
std::string without_lanes(const std::string& description) {
  return description.substr(0, description.rfind(", "));
}

// Rounds over all cells, so that a slow minute of the machine meets all of them.
Status measure(const BenchArguments& arguments, const std::function<bool()>& stopped, Console& console,
               Progress& progress, DiskBench& bench) {
  std::vector<std::string> said;
  const auto say = [&](const std::string& line) {  // each once
    if (std::find(said.begin(), said.end(), line) != said.end()) return;
    said.push_back(line);
    console.info("bench: " + line);
  };
  const std::uint64_t total = std::uint64_t{arguments.rounds} * bench.cells.size();
  std::uint64_t done = 0;
  for (std::uint32_t round = 0; round < arguments.rounds; ++round) {
    for (Cell& cell : bench.cells) {
      RateProbe probe;
      probe.files = bench.files;
      probe.read_bytes = cell.read_bytes;
      probe.depth = cell.depth;
      probe.duration = std::chrono::milliseconds(arguments.milliseconds);
      probe.kind = kind_of(arguments.backend);
      probe.seed = round + 1;
      probe.cancelled = stopped;
      std::vector<std::string> lines;
      std::mutex mutex;
      probe.log = [&](std::string line) {
        const std::lock_guard lock(mutex);
        lines.push_back(std::move(line));
      };
      COLIBRI_ASSIGN_OR_RETURN(const ReadRate rate, measure_read_rate(probe));
      cell.ours.push_back(rate.bytes_per_second);
      for (const std::string& line : lines) say(line);
      bench.reader = without_lanes(rate.description);
      if (bench.fio) {
        FioProbe fio{.files = bench.files,
                     .read_bytes = cell.read_bytes,
                     .depth = cell.depth,
                     .duration = probe.duration,
                     .io_uring = bench.reader.starts_with("io_uring"),
                     .direct = bench.reader.ends_with("O_DIRECT"),
                     .seed = round + 1,
                     .cancelled = stopped};
        COLIBRI_ASSIGN_OR_RETURN(const double theirs, fio_read_rate(fio));
        cell.fio.push_back(theirs);
      }
      progress.update(++done, total);
    }
  }
  return {};
}

std::string table_of(const DiskBench& bench) {
  std::string text = bench.reader + " on " + bench.file_system.name + ", random reads of " +
                     format_bytes(bench.file_bytes) + "\n      size  depth    colibri";
  text += bench.fio ? "        fio  of fio\n" : "\n";
  for (const Cell& cell : bench.cells) {
    char line[160];
    std::snprintf(line, sizeof line, "%10s  %5u  %6.3f GB/s", format_bytes(cell.read_bytes).c_str(),
                  cell.depth, median(cell.ours) / 1e9);
    text += line;
    if (bench.fio) {
      std::snprintf(line, sizeof line, "  %6.3f GB/s  %5.1f %%", median(cell.fio) / 1e9,
                    100 * paired_ratio(cell));
      text += line;
    }
    text += cell.depth == 1 ? "  one lane\n" : "\n";
  }
  return text;
}

std::string json_of(const DiskBench& bench, const BenchArguments& arguments) {
  std::string json = "{\"folder\": ";
  append_json_string(json, arguments.folder);
  json += ", \"file_system\": ";
  append_json_string(json, bench.file_system.name);
  json += ", \"file_bytes\": ";
  append_json_number(json, bench.file_bytes);
  json += ", \"reader\": ";
  append_json_string(json, bench.reader);
  json += ", \"fio\": ";
  if (bench.fio) append_json_string(json, *bench.fio);
  if (!bench.fio) json += "null";
  json += ", \"milliseconds\": ";
  append_json_number(json, arguments.milliseconds);
  json += ", \"rounds\": ";
  append_json_number(json, arguments.rounds);
  json += ", \"cells\": [";
  for (const Cell& cell : bench.cells) {
    json += json.back() == '[' ? "{\"read_bytes\": " : ", {\"read_bytes\": ";
    append_json_number(json, cell.read_bytes);
    json += ", \"depth\": ";
    append_json_number(json, cell.depth);
    json += ", \"bytes_per_second\": ";
    append_json_number(json, median(cell.ours));
    json += ", \"rounds\": ";
    append_json_numbers(json, cell.ours);
    if (bench.fio) {
      json += ", \"fio_bytes_per_second\": ";
      append_json_number(json, median(cell.fio));
      json += ", \"fio_rounds\": ";
      append_json_numbers(json, cell.fio);
      json += ", \"of_fio\": ";
      append_json_number(json, paired_ratio(cell));
    }
    json += "}";
  }
  return json + "]}\n";
}

// The experts of a container, or a file that is made for it.
Status find_files(const BenchArguments& arguments, const std::function<bool()>& stopped, Console& console,
                  DiskBench& bench, std::optional<ScratchFile>& scratch) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::path(arguments.folder) / kSpecFile, error)) {
    COLIBRI_ASSIGN_OR_RETURN(const auto container, Container::open(arguments.folder));
    const auto files = container->expert_files();
    bench.files.assign(files.begin(), files.end());
  } else {
    if (!std::filesystem::is_directory(arguments.folder, error)) {
      return {ErrorCode::not_found,
              "not a folder: " + arguments.folder + "; name one on the drive to measure"};
    }
    Progress progress(console, "bench: writing", ProgressUnit::bytes);
    auto made = ScratchFile::create(
        arguments.folder, parse_bytes(arguments.file_bytes).value(),
        [&progress](std::uint64_t done, std::uint64_t total) { progress.update(done, total); }, stopped);
    progress.finish();
    if (!made) return Status(made.status());
    scratch.emplace(std::move(made).value());
    bench.files = {scratch->path()};
  }
  for (const std::filesystem::path& file : bench.files)
    bench.file_bytes += std::filesystem::file_size(file, error);
  bench.file_system = file_system_of(bench.files.front());
  return {};
}

ExitStatus run_bench_disk(const BenchArguments& arguments, VerbContext& context) {
  const auto signals = StopSignals::start();
  if (!signals) return context.fail(signals.status());
  const StopSignals& stop = **signals;
  const auto stopped = [&stop] { return stop.received() != 0; };
  DiskBench bench;
  for (const std::string& size : arguments.sizes) {
    for (const std::uint32_t depth : arguments.depths) {
      bench.cells.push_back({parse_bytes(size).value(), depth, {}, {}});
    }
  }
  if (!arguments.no_fio) bench.fio = fio_version();
  std::optional<ScratchFile> scratch;
  Status done = find_files(arguments, stopped, context.console, bench, scratch);
  if (done) {
    Progress progress(context.console, "bench", ProgressUnit::items);
    done = measure(arguments, stopped, context.console, progress, bench);
    progress.finish();
  }
  if (stop.received() != 0) {
    context.console.error("bench disk: stopped by a signal");
    return exit_status_of_signal(stop.received());
  }
  if (!done) return context.fail(std::move(done).at("bench disk"));
  if (!bench.fio && !arguments.no_fio)
    context.console.info("bench: fio is not installed, its figures are left out");
  context.console.print(arguments.json ? json_of(bench, arguments) : table_of(bench));
  return ExitStatus::ok;
}

}  // namespace

void add_bench(Verb& program, VerbContext& context) {
  Verb group = program.verb("bench", "Measure this machine");
  group.require_verb("WHAT");
  group.footer("Examples:\n  colibri bench disk /fast");
  Verb verb = group.verb("disk", "Rate of the reader of experts, over sizes and depths");
  verb.footer(
      "Where DIR is a container its experts are read; else a file without a name is written into DIR, which\n"
      "is gone when the program ends. A depth of 1 is one lane alone. fio, where it is installed, measures\n"
      "the same reads in turn with ours; rates are medians of the rounds, `of fio` of the ratios in them.\n\n"
      "Examples:\n"
      "  colibri bench disk /fast\n"
      "  colibri bench disk model --sizes 1MiB,2MiB --depths 1,16 --json");
  auto arguments = std::make_shared<BenchArguments>();
  verb.positional("DIR", arguments->folder, "A folder on the drive, or a container").required();
  verb.option("--file-size", arguments->file_bytes, "Of the file that is written")
      .check(check_file_size, "SIZE")
      .show_default();
  verb.option("--sizes", arguments->sizes, "Bytes of a read")
      .separated_by(',')
      .check(check_read_size, "SIZE,...")
      .show_default();
  verb.option("--depths", arguments->depths, "Reads in flight")
      .separated_by(',')
      .range(1U, kMaxReadLanes)
      .show_default();
  verb.option("--milliseconds", arguments->milliseconds,
              "Of each measurement, after a fifth of it to warm up")
      .range(20U, 3'600'000U)
      .show_default();
  verb.option("--rounds", arguments->rounds, "Measurements of each size and depth")
      .range(1U, 1000U)
      .show_default();
  verb.option("--backend", arguments->backend, "How reads are issued")
      .one_of({"auto", "io_uring", "pread"})
      .show_default();
  verb.flag("--no-fio", arguments->no_fio, "Leave fio out");
  verb.flag("--json", arguments->json, "As JSON, with the rates of each round");
  add_quiet_flag(verb, context);
  verb.on_run(context, [arguments, &context] { return run_bench_disk(*arguments, context); });
}

}  // namespace colibri::cli
