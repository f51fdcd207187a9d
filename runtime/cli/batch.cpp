// colibri batch: a file of requests through a model, results as they complete.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "runtime/cli/engine_session.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/routing_trace.hpp"
#include "runtime/cli/stop_signals.hpp"
#include "runtime/cli/value_checks.hpp"
#include "runtime/cli/verb_flags.hpp"
#include "runtime/engine/request_file_job.hpp"
#include "runtime/metrics/routing_trace_reader.hpp"

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

Task task_of(const std::string& name) {
  return name == "score" ? Task::score : name == "embed" ? Task::embed : Task::generate;
}

RequestFile file_of(const BatchArguments& arguments) {
  return {.input = arguments.input,
          .output = arguments.output,
          .task = task_of(arguments.task),
          .seed = arguments.seed,
          .mode = arguments.resume  ? ResultMode::resume
                  : arguments.force ? ResultMode::force
                                    : ResultMode::fresh,
          .in_order = arguments.in_order};
}

// One run of the verb: what is opened, in this order, and closed in the reverse one.
class Batch {
 public:
  Batch(const BatchArguments& arguments, VerbContext& context)
      : arguments_(arguments), context_(context), file_(file_of(arguments)) {}
  ExitStatus run();

 private:
  Status open();
  // What can be refused without the model's weights: other inputs and outputs than this job can take.
  Status open_files(const Container& container);
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
  bool begun_ = false;  // every stage has started
  std::unique_ptr<StopSignals> signals_;
  std::unique_ptr<EngineSession> session_;
  RequestFileJob file_;
  std::unique_ptr<RoutingTrace> routing_;
  std::unique_ptr<Progress> progress_;
};

// Why these flags cannot go together with this input and output; empty when they can.
std::string conflict_of(const BatchArguments& arguments, const RequestFileJob& file) {
  if (arguments.resume && file.streamed()) {
    return "--resume needs requests that can be read again, and this input cannot: " + arguments.input +
           "; save it to a file first";
  }
  if (arguments.resume && !file.to_file())
    return "--resume needs the results file of the unfinished job; name it with -o FILE";
  if (arguments.in_order && !file.to_file())
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
  COLIBRI_RETURN_IF_ERROR(file_.scan(signals_->stopping()));
  const std::string journal = arguments_.output.empty() ? "" : arguments_.output + ".journal";
  SessionOptions options;
  options.files = {{"the results", arguments_.output, true},
                   {"the routing trace", arguments_.trace_routing, true},
                   {"the requests", arguments_.input},
                   {"the journal of the results", journal}};
  options.before_loading = [this](const Container& container) { return open_files(container); };
  options.workload = [this](const Container& container, const Tokenizer* tokenizer) {
    return file_.workload(container, tokenizer);
  };
  options.stopping = signals_->stopping();
  COLIBRI_ASSIGN_OR_RETURN(
      session_, EngineSession::open(arguments_.model, arguments_.pipeline, context_, std::move(options)));
  COLIBRI_RETURN_IF_ERROR(file_.open_source(session_->engine()));
  if (!arguments_.trace_routing.empty()) routing_ = std::make_unique<RoutingTrace>(arguments_.trace_routing);
  describe_start();
  return {};
}

Status Batch::open_files(const Container& container) {
  if (!arguments_.trace_routing.empty()) COLIBRI_RETURN_IF_ERROR(check_writable(arguments_.trace_routing));
  return file_.open_results(container);
}

Status Batch::begin_files() {
  begun_ = true;
  COLIBRI_RETURN_IF_ERROR(file_.begin());
  return routing_ != nullptr ? routing_->begin(session_->engine()) : Status();
}

void Batch::describe_start() {
  if (!file_.note().empty()) context_.console.info(file_.note());
  if (file_.taken_up() > 0) {
    context_.console.info("going on: " + std::to_string(file_.taken_up()) + " of " +
                          std::to_string(file_.requests()) + " requests are answered already");
  }
}

void Batch::show_progress(const RunReport& report) {
  if (!progress_->due()) return;
  char extra[128];
  const double read_rate =
      report.wall_seconds > 0 ? static_cast<double>(report.bytes_read) / report.wall_seconds / 1e9 : 0;
  std::snprintf(extra, sizeof extra, "%.0f tokens/s, hit rate %.0f %%, disk %.2f GB/s",
                report.tokens_per_second(), 100 * report.hit_rate(), read_rate);
  // How many there will be is not known of a stream.
  progress_->update(file_.answered(), file_.streamed() ? 0 : file_.requests(), extra);
}

ExitStatus Batch::run() {
  if (const std::string conflict = conflict_of(arguments_, file_); !conflict.empty()) {
    context_.console.error("batch: " + conflict);
    return ExitStatus::wrong_usage;
  }
  if (Status opened = open(); !opened) {
    return signals_ != nullptr && signals_->caused(opened) ? stopped() : fail(std::move(opened));
  }
  progress_ = std::make_unique<Progress>(context_.console, "batch", ProgressUnit::items);
  Job job;
  job.source = &file_.source();
  job.sink = &file_.sink();
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
  if (Status kept = file_.end(false); !kept) return fail(std::move(kept));
  context_.console.info("stopped by a signal: results so far are kept" +
                        std::string(file_.to_file() ? "; the same command with --resume goes on" : ""));
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
  const bool stopped = signals_->received() != 0;
  if (stopped && !begun_) return this->stopped();
  if (routing_ != nullptr) {
    if (Status written = routing_->finish(); !written) return fail(std::move(written));
  }
  if (!stopped) {
    if (Status done = file_.end(true); !done) return fail(std::move(done));
  }
  if (routing_ != nullptr) add_belady(report);
  if (!context_.console.quiet()) context_.console.write_report(report.to_table());
  if (Status written = session_->write_profile(report); !written) return fail(std::move(written));
  if (stopped) return this->stopped();
  if (file_.requests() == 0) {
    context_.console.warning("batch: the input holds no requests: " + arguments_.input +
                             "; there are no results");
  }
  if (file_.failed() == 0) return ExitStatus::ok;
  context_.console.error("batch: lines answered with an error: " + std::to_string(file_.failed()) +
                         "; see \"error\" in their results");
  return ExitStatus::some_lines_failed;
}

}  // namespace

void add_batch(Verb& program, VerbContext& context) {
  Verb verb = program.verb("batch", "Run a file of requests: generate, score or embed");
  verb.footer(
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
  verb.positional("MODEL", arguments->model, "Container folder").required();
  verb.positional("REQUESTS", arguments->input, "JSONL file with requests, - for standard input").required();
  verb.option("-o,--output", arguments->output, "Results file; standard output when left out");
  verb.option("--task", arguments->task, "What to do with each line")
      .one_of({"generate", "score", "embed"})
      .show_default();
  verb.option("--seed", arguments->seed,
              "Seed of the job: seeds of lines without one are made from it and their id")
      .check(check_is_unsigned, "INTEGER")
      .show_default();
  verb.flag("--in-order", arguments->in_order, "Sort the results by line number at the end");
  Option resume = verb.flag("--resume", arguments->resume, "Go on with an unfinished job");
  verb.flag("--force", arguments->force, "Start over, whatever the results file holds").excludes(resume);
  verb.option("--trace-routing", arguments->trace_routing,
              "File for the experts that each row picked (JSONL)");
  add_setting_flag(verb, arguments->pipeline, "--profile", "profile.output",
                   "File for the profile of the run (JSON)");
  add_pipeline_flags(verb, arguments->pipeline);
  add_quiet_flag(verb, context);
  verb.on_run(context, [arguments, &context] { return Batch(*arguments, context).run(); });
}

}  // namespace colibri::cli
