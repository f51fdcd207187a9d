// colibri batch: a file of requests through a model, results as they complete.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "io/text/jsonl_reader.hpp"
#include "io/text/prompt_estimate.hpp"
#include "io/text/request_scan.hpp"
#include "io/text/result_file.hpp"
#include "io/text/result_stream.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/cli/engine_session.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/routing_trace.hpp"
#include "runtime/cli/stop_signals.hpp"
#include "runtime/cli/value_checks.hpp"
#include "runtime/metrics/routing_trace_reader.hpp"
#include "stages/jsonl_sink.hpp"
#include "stages/jsonl_source.hpp"

namespace colibri::cli {
namespace {

struct BatchArguments {
  std::string model;
  std::string input;
  std::string output;
  std::string task = "generate";
  std::string trace_routing;
  std::uint64_t seed = 0;
  bool in_order = false;
  bool resume = false;
  bool force = false;
  PipelineFlags pipeline;
};

constexpr std::uint64_t kMaximumReplayedTrace = 64ULL << 20;  // bytes of a trace

bool writes_file(const BatchArguments& arguments) {
  return !arguments.output.empty() && arguments.output != "-" && ResultFile::fits(arguments.output);
}

// Files and folders are not; neither is what does not exist, so that the error is one of opening it.
bool can_be_read_only_once(const std::string& input) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(input, ignored).type();
  using enum std::filesystem::file_type;
  return input == "-" || kind == fifo || kind == character || kind == socket;
}

Task task_of(const std::string& name) {
  return name == "score" ? Task::score : name == "embed" ? Task::embed : Task::generate;
}

// One run of the verb: what is opened, in this order, and closed in the reverse one.
class Batch {
 public:
  Batch(const BatchArguments& arguments, VerbContext& context) : arguments_(arguments), context_(context) {}
  ExitStatus run();

 private:
  Status open();
  // What can be refused without the model's weights: other inputs and outputs than this job can take.
  Status open_files(const Container& container);
  Result<Workload> workload(const Container& container, const Tokenizer* tokenizer) const;
  Status open_results(const Container& container);
  Status open_source();
  // Every stage has started: from here on files of earlier jobs may go.
  Status begin_files();
  void describe_start();
  void show_progress(const RunReport& report);
  ExitStatus finish(RunReport& report);
  void add_belady(RunReport& report) const;
  ExitStatus stopped();
  ExitStatus fail(Status status) const { return context_.fail(std::move(status).at("batch")); }

  const BatchArguments& arguments_;
  VerbContext& context_;
  // Input that can be read only once: standard input, a pipe, a device.
  bool streamed_ = false;
  bool begun_ = false;  // every stage has started
  std::unique_ptr<StopSignals> signals_;
  InputScan scan_;
  std::unique_ptr<EngineSession> session_;
  std::unique_ptr<ResultFile> file_;
  std::unique_ptr<ResultStream> stream_;
  std::unique_ptr<JsonlSink> sink_;
  std::unique_ptr<JsonlSource> source_;
  std::unique_ptr<RoutingTrace> routing_;
  std::unique_ptr<Progress> progress_;
};

// Why these flags cannot go together with this input and output; empty when they can.
std::string conflict_of(const BatchArguments& arguments, bool streamed) {
  const bool to_file = writes_file(arguments);
  if (arguments.resume && streamed) {
    return "--resume needs requests that can be read again, and this input cannot: " + arguments.input +
           "; save it to a file first";
  }
  if (arguments.resume && !to_file)
    return "--resume needs the results file of the unfinished job; name it with -o FILE";
  if (arguments.in_order && !to_file)
    return "--in-order sorts a results file at the end; name one with -o FILE";
  return {};
}

Status Batch::open() {
  // Signals first: threads made later inherit what is blocked.
  COLIBRI_ASSIGN_OR_RETURN(
      signals_, StopSignals::start([&console = context_.console](int) {
        console.info("stopping: the step that runs is finished first; a second signal gives it up");
      }));
  // The input is looked at before the model: duplicate ids show at once.
  if (!streamed_) {
    COLIBRI_ASSIGN_OR_RETURN(scan_, scan_requests(arguments_.input, signals_->stopping()));
  }
  const std::string journal = arguments_.output.empty() ? "" : arguments_.output + ".journal";
  SessionOptions options;
  options.files = {{"the results", arguments_.output, true},
                   {"the routing trace", arguments_.trace_routing, true},
                   {"the requests", arguments_.input},
                   {"the journal of the results", journal}};
  options.before_loading = [this](const Container& container) { return open_files(container); };
  if (!streamed_ && arguments_.task != "generate") {
    options.workload = [this](const Container& container, const Tokenizer* tokenizer) {
      return workload(container, tokenizer);
    };
  }
  options.stopping = signals_->stopping();
  COLIBRI_ASSIGN_OR_RETURN(
      session_, EngineSession::open(arguments_.model, arguments_.pipeline, context_, std::move(options)));
  ResultWriter::TokenText token_text;
  if (const Tokenizer* tokenizer = session_->engine().tokenizer()) {
    token_text = [tokenizer](std::int32_t token) { return tokenizer->decode(std::span(&token, 1), false); };
  }
  ResultOutput& output = file_ != nullptr ? static_cast<ResultOutput&>(*file_) : *stream_;
  sink_ = std::make_unique<JsonlSink>(output, ResultWriter(std::move(token_text)));
  COLIBRI_RETURN_IF_ERROR(open_source());
  if (!arguments_.trace_routing.empty()) routing_ = std::make_unique<RoutingTrace>(arguments_.trace_routing);
  describe_start();
  return {};
}

// Prompts that are scored or embedded go through the model in few large steps.
Result<Workload> Batch::workload(const Container& container, const Tokenizer* tokenizer) const {
  RequestDefaults defaults;
  defaults.vocab_size = container.spec().vocab_size;
  COLIBRI_ASSIGN_OR_RETURN(
      const PromptEstimate prompts,
      estimate_prompts(arguments_.input, scan_, task_of(arguments_.task), defaults, tokenizer));
  return Workload{.prompts = scan_.requests, .rows = prompts.tokens, .longest_rows = prompts.longest};
}

Status Batch::open_files(const Container& container) {
  if (!arguments_.trace_routing.empty()) COLIBRI_RETURN_IF_ERROR(check_writable(arguments_.trace_routing));
  return open_results(container);
}

Status Batch::open_results(const Container& container) {
  if (!writes_file(arguments_)) {
    COLIBRI_ASSIGN_OR_RETURN(stream_, ResultStream::open(arguments_.output));
    return {};
  }
  JobIdentity identity;
  identity.input = scan_.digest;
  identity.input_lines = scan_.lines;
  identity.model = container.digest();
  identity.options = "task=" + arguments_.task + " seed=" + std::to_string(arguments_.seed);
  const ResultMode mode = arguments_.resume  ? ResultMode::resume
                          : arguments_.force ? ResultMode::force
                                             : ResultMode::fresh;
  COLIBRI_ASSIGN_OR_RETURN(
      file_, ResultFile::open(arguments_.output, mode, identity, streamed_ ? "" : arguments_.input));
  return {};
}

Status Batch::open_source() {
  auto reader = arguments_.input == "-"
                    ? JsonlReader::from_descriptor(UniqueDescriptor(::dup(STDIN_FILENO)), "standard input")
                    : JsonlReader::open(arguments_.input);
  if (!reader) return std::move(reader).status();
  JsonlSourceOptions options;
  options.task = task_of(arguments_.task);
  options.tokenizer = session_->engine().tokenizer();
  options.defaults.vocab_size = session_->engine().spec().vocab_size;
  options.defaults.job_seed = arguments_.seed;
  if (file_ != nullptr) options.completed = &file_->completed();
  options.check_ids = streamed_;
  source_ = std::make_unique<JsonlSource>(std::move(reader).value(), options);
  return {};
}

Status Batch::begin_files() {
  begun_ = true;
  if (file_ != nullptr) COLIBRI_RETURN_IF_ERROR(file_->begin());
  return routing_ != nullptr ? routing_->begin(session_->engine()) : Status();
}

void Batch::describe_start() {
  if (file_ != nullptr && !file_->note().empty()) context_.console.info(file_->note());
  if (arguments_.resume && file_->completed().size() > 0) {
    context_.console.info("going on: " + std::to_string(file_->completed().size()) + " of " +
                          std::to_string(scan_.requests) + " requests are answered already");
  }
}

void Batch::show_progress(const RunReport& report) {
  if (!progress_->due()) return;
  char extra[128];
  const double read_rate =
      report.wall_seconds > 0 ? static_cast<double>(report.bytes_read) / report.wall_seconds / 1e9 : 0;
  std::snprintf(extra, sizeof extra, "%.0f tokens/s, hit rate %.0f %%, disk %.2f GB/s",
                report.tokens_per_second(), 100 * report.hit_rate(), read_rate);
  const std::uint64_t earlier = file_ != nullptr ? file_->completed().size() : 0;
  progress_->update(earlier + sink_->succeeded() + sink_->failed(), scan_.requests, extra);
}

ExitStatus Batch::run() {
  streamed_ = can_be_read_only_once(arguments_.input);
  if (const std::string conflict = conflict_of(arguments_, streamed_); !conflict.empty()) {
    context_.console.error("batch: " + conflict);
    return ExitStatus::wrong_usage;
  }
  if (Status opened = open(); !opened) {
    return signals_ != nullptr && signals_->caused(opened) ? stopped() : fail(std::move(opened));
  }
  progress_ = std::make_unique<Progress>(context_.console, "batch", ProgressUnit::items);
  Job job;
  job.source = source_.get();
  job.sink = sink_.get();
  job.trace = routing_.get();
  job.started = [this] { return begin_files(); };
  job.stopping = signals_->stopping();
  job.progress = [this](const RunReport& report) { show_progress(report); };
  auto report = [&] {
    const CancelOnSignal cancel(*signals_, [this] {
      context_.console.info("giving up what runs; a third signal waits for nothing");
      session_->engine().cancel();
    });
    return session_->engine().run(job);
  }();
  progress_->finish();
  if (!report && signals_->caused(report.status())) return stopped();
  if (!report) return fail(report.status());
  return finish(*report);
}

// A signal has ended the job before its end: what there is of its files is made safe.
ExitStatus Batch::stopped() {
  if (!begun_) {
    context_.console.info("stopped by a signal before the job began");
    return exit_status_of_signal(signals_->received());
  }
  if (routing_ != nullptr) {
    if (Status written = routing_->finish(); !written) return fail(std::move(written));
  }
  if (file_ != nullptr) {
    if (Status kept = file_->flush(); !kept) return fail(std::move(kept));
  }
  context_.console.info("stopped by a signal: results so far are kept" +
                        std::string(file_ != nullptr ? "; the same command with --resume goes on" : ""));
  return exit_status_of_signal(signals_->received());
}

// What Belady's policy would have hit with the same slots; not known of traces that take long to read.
void Batch::add_belady(RunReport& report) const {
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(arguments_.trace_routing, error);
  if (error || bytes > kMaximumReplayedTrace) return;
  const auto trace = read_routing_trace(arguments_.trace_routing);
  if (!trace || trace->visits.empty()) return;
  const auto slots = static_cast<std::uint32_t>(session_->engine().plan().slots);
  report.belady_hits =
      replay_slots(trace->visits, {trace->moe_layers, trace->experts, slots}, SlotPolicy::belady_bypass).hits;
}

ExitStatus Batch::finish(RunReport& report) {
  if (Status failure = source_->failure(); !failure) return fail(std::move(failure));
  const bool stopped = signals_->received() != 0;
  if (stopped && !begun_) return this->stopped();
  if (routing_ != nullptr) {
    if (Status written = routing_->finish(); !written) return fail(std::move(written));
  }
  if (!stopped && file_ != nullptr) {
    if (Status done = file_->finish(arguments_.in_order); !done) return fail(std::move(done));
  }
  if (routing_ != nullptr) add_belady(report);
  if (!context_.console.quiet()) context_.console.write_report(report.to_table());
  if (Status written = session_->write_profile(report); !written) return fail(std::move(written));
  if (stopped) return this->stopped();
  if (source_->requests() == 0 && (file_ == nullptr || file_->completed().size() == 0)) {
    context_.console.warning("batch: the input holds no requests: " + arguments_.input +
                             "; there are no results");
  }
  const std::uint64_t failed = sink_->failed() + (file_ != nullptr ? file_->completed_failed() : 0);
  if (failed == 0) return ExitStatus::ok;
  context_.console.error("batch: lines answered with an error: " + std::to_string(failed) +
                         "; see \"error\" in their results");
  return ExitStatus::some_lines_failed;
}

}  // namespace

void add_batch(CLI::App& app, VerbContext& context) {
  CLI::App* verb = app.add_subcommand("batch", "Run a file of requests: generate, score or embed");
  verb->footer(
      "A request is a line of JSON: {\"id\": \"a\", \"prompt\": \"Once\", \"max_tokens\": 16}, or an OpenAI "
      "batch\n"
      "line with a completion. Fields: id, prompt or tokens, max_tokens, temperature, top_p, top_k, seed, "
      "stop,\n"
      "ignore_eos and logprobs for generate, pooling and normalize for embed. One file may serve several "
      "tasks:\n"
      "fields of the other tasks are checked and have no effect. Results are written as they complete.\n"
      "Exit status: 0 every line was answered, 3 some lines have an error, 1 the job failed, 2 wrong usage,\n"
      "130 or 143 stopped by a signal.\n\n"
      "Examples:\n"
      "  colibri batch model requests.jsonl -o results.jsonl --experts-memory 25%\n"
      "  colibri batch model requests.jsonl -o results.jsonl --resume\n"
      "  colibri batch model documents.jsonl --task score > scores.jsonl");
  auto arguments = std::make_shared<BatchArguments>();
  verb->add_option("MODEL", arguments->model, "Container folder")->required();
  verb->add_option("REQUESTS", arguments->input, "JSONL file with requests, - for standard input")
      ->required();
  verb->add_option("-o,--output", arguments->output, "Results file; standard output when left out");
  verb->add_option("--task", arguments->task, "What to do with each line")
      ->check(CLI::IsMember({"generate", "score", "embed"}))
      ->capture_default_str();
  verb->add_option("--seed", arguments->seed,
                   "Seed of the job: seeds of lines without one are made from it and their id")
      ->check(CLI::Validator(check_is_unsigned, "INTEGER"))
      ->capture_default_str();
  verb->add_flag("--in-order", arguments->in_order, "Sort the results by line number at the end");
  CLI::Option* resume = verb->add_flag("--resume", arguments->resume, "Go on with an unfinished job");
  verb->add_flag("--force", arguments->force, "Start over, whatever the results file holds")
      ->excludes(resume);
  verb->add_option("--trace-routing", arguments->trace_routing,
                   "File for the experts that each row picked (JSONL)");
  add_setting_flag(*verb, arguments->pipeline, "--profile", "profile.output",
                   "File for the profile of the run (JSON)");
  add_pipeline_flags(*verb, arguments->pipeline);
  add_quiet_flag(*verb, context);
  verb->callback([arguments, &context] {
    context.run = [arguments, &context] { return Batch(*arguments, context).run(); };
  });
}

}  // namespace colibri::cli
