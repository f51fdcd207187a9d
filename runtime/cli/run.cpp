// colibri run: a pipeline file over hidden states in a file, without the model around its experts.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "runtime/cli/engine_session.hpp"
#include "runtime/cli/hidden_file.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/stop_signals.hpp"
#include "runtime/cli/verb_flags.hpp"

namespace colibri::cli {
namespace {

struct RunArguments {
  std::string input;
  std::string output;
  PipelineFlags pipeline;
};

// One run of the verb: what is opened, in this order, and closed in the reverse one.
class Run {
 public:
  Run(const RunArguments& arguments, VerbContext& context) : arguments_(arguments), context_(context) {}
  ExitStatus run();

 private:
  Status open(PipelineSpec pipeline);
  ExitStatus stopped() const;
  ExitStatus finish(const RunReport& report);
  ExitStatus fail(Status status) const { return context_.fail(std::move(status).at("run")); }

  const RunArguments& arguments_;
  VerbContext& context_;
  std::unique_ptr<StopSignals> signals_;
  std::unique_ptr<HiddenFileSource> source_;
  std::unique_ptr<SafetensorsOutput> output_;
  std::unique_ptr<HiddenFileSink> sink_;
  std::unique_ptr<EngineSession> session_;
};

// What is there already may be replaced when it is of the same sort: a slip of a flag must not cost a file.
Status check_replaceable(const std::string& path) {
  if (path == "-") {
    return {ErrorCode::invalid_input,
            "results are not written in order, so they cannot go to standard output; name a file"};
  }
  if (path.empty())
    return {ErrorCode::invalid_input, "no file to write to was named; give one with --output"};
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  if (std::filesystem::is_directory(path, ignored)) {
    return {ErrorCode::invalid_input, "the output is a folder: " + path + "; name a file in it"};
  }
  if (std::filesystem::is_regular_file(path, ignored) &&
      (std::filesystem::file_size(path, ignored) == 0 || SafetensorsFile::open(path)))
    return {};
  return {ErrorCode::invalid_input,
          "this is no safetensors file, so it is not replaced: " + path + "; name another file"};
}

Status Run::open(PipelineSpec pipeline) {
  // Signals first: threads made later inherit what is blocked.
  COLIBRI_ASSIGN_OR_RETURN(
      signals_, StopSignals::start([&console = context_.console](int) {
        console.info("stopping: the steps that run are finished first; a second signal gives them up");
      }));
  COLIBRI_ASSIGN_OR_RETURN(source_, HiddenFileSource::open(arguments_.input));
  const std::string partial = SafetensorsOutput::temporary_name(arguments_.output);
  const std::string model = model_path(pipeline);
  SessionOptions options;
  options.files = {{"the output", arguments_.output, true},
                   {"the unfinished output", partial, true},
                   {"the input", arguments_.input},
                   {"the pipeline", arguments_.pipeline.file}};
  options.before_loading = [this](const Container& container) -> Status {
    COLIBRI_RETURN_IF_ERROR(source_->check(container.spec()));
    COLIBRI_RETURN_IF_ERROR(check_replaceable(arguments_.output));
    COLIBRI_ASSIGN_OR_RETURN(output_, SafetensorsOutput::create(arguments_.output, source_->outputs()));
    return {};
  };
  options.stopping = signals_->stopping();
  COLIBRI_ASSIGN_OR_RETURN(session_,
                           EngineSession::open(model, std::move(pipeline), context_, std::move(options)));
  sink_ = std::make_unique<HiddenFileSink>(*output_);
  return {};
}

ExitStatus Run::run() {
  auto pipeline = checked_pipeline(arguments_.pipeline, builtin_registry(), context_);
  if (!pipeline) return fail(std::move(pipeline).status());
  if (!takes_hidden_states(*pipeline)) {
    context_.console.error(
        "run: this pipeline takes requests, not hidden states: " + arguments_.pipeline.file +
        "; run it with: colibri batch MODEL REQUESTS --pipeline " + arguments_.pipeline.file);
    return ExitStatus::wrong_usage;
  }
  if (pipeline->model.empty()) {
    context_.console.error("run: no model is named: " + arguments_.pipeline.file +
                           " has no `model`; add it, or use --model");
    return ExitStatus::wrong_usage;
  }
  if (Status opened = open(std::move(pipeline).value()); !opened) {
    return signals_ != nullptr && signals_->caused(opened) ? stopped() : fail(std::move(opened));
  }
  Progress progress(context_.console, "run", ProgressUnit::items);
  Job job;
  job.hidden_source = source_.get();
  job.hidden_sink = sink_.get();
  job.stopping = signals_->stopping();
  job.progress = [&](const RunReport&) { progress.update(sink_->written(), source_->rows(), "rows"); };
  const auto report = [&] {
    const CancelOnSignal cancel(*signals_, [this] {
      context_.console.info("giving up what runs; a third signal waits for nothing");
      session_->engine().cancel();
    });
    return session_->engine().run(job);
  }();
  progress.finish();
  if (!report && signals_->caused(report.status())) return stopped();
  if (!report) return fail(report.status());
  return finish(*report);
}

ExitStatus Run::stopped() const {
  context_.console.info("stopped by a signal: " + arguments_.output + " is not written");
  return exit_status_of_signal(signals_->received());
}

ExitStatus Run::finish(const RunReport& report) {
  if (signals_->received() != 0 && sink_->written() < source_->rows()) return stopped();
  if (sink_->written() != source_->rows()) {
    return fail(Status(ErrorCode::internal, "rows without a result: " + std::to_string(source_->rows()) +
                                                " given, " + std::to_string(sink_->written()) +
                                                " came back; please report this"));
  }
  if (Status written = output_->finish(); !written) return fail(std::move(written));
  if (!context_.console.quiet()) {
    context_.console.write_report(report.to_table());
    char rate[64];
    std::snprintf(rate, sizeof rate, "%.0f rows/s",
                  static_cast<double>(source_->rows()) / std::max(report.wall_seconds, 1e-9));
    context_.console.info("run: wrote " + arguments_.output + ": " + std::to_string(source_->rows()) +
                          " rows, " + rate);
  }
  if (Status written = session_->write_profile(report); !written) return fail(std::move(written));
  if (sink_->failed() == 0) return ExitStatus::ok;
  for (const Status& failure : sink_->failures()) context_.console.error(Status(failure).at("run"));
  context_.console.error("run: rows without a result: " + std::to_string(sink_->failed()) +
                         "; they are NaN in the output: " + arguments_.output);
  return ExitStatus::some_lines_failed;
}

}  // namespace

void add_run(Verb& program, VerbContext& context) {
  Verb verb = program.verb("run", "Run a pipeline over hidden states: the experts alone");
  verb.footer(
      "The pipeline begins with block_in and ends with block_out, as configs/block.yaml does. The input is "
      "a\n"
      "safetensors file with a tensor moe_input.N [rows, hidden] for each MoE layer N to compute, as F32, "
      "F16\n"
      "or BF16: the residual stream after attention, before the norm. The output gets moe_output.N of the "
      "same\n"
      "shape as F32: what the MoE block adds to each row. Other tensors of the input are passed over. A row\n"
      "that has no result (its input is not finite, an expert could not be read) is NaN in the output.\n"
      "The output appears when it is whole.\n"
      "Exit status: 0 every row has a result, 3 some have none, 1 the job failed, 2 wrong usage,\n"
      "130 or 143 stopped by a signal.\n\n"
      "Examples:\n"
      "  colibri run configs/block.yaml --model model --input x.safetensors --output y.safetensors\n"
      "  COLIBRI_MODEL=model colibri run configs/block.yaml --input x.safetensors -o y.safetensors "
      "--max-rows 4096");
  auto arguments = std::make_shared<RunArguments>();
  verb.positional("FILE", arguments->pipeline.file, "The pipeline file").required();
  verb.option("--input", arguments->input, "safetensors file with moe_input.N").required();
  verb.option("-o,--output", arguments->output, "safetensors file to write").required();
  add_setting_flag(verb, arguments->pipeline, "--model", "model",
                   "Container folder; `model` of the pipeline when left out");
  add_setting_flag(verb, arguments->pipeline, "--profile", "profile.output",
                   "File for the profile of the run (JSON)");
  add_pipeline_setting_flags(verb, arguments->pipeline);
  add_quiet_flag(verb, context);
  verb.on_run(context, [arguments, &context] { return Run(*arguments, context).run(); });
}

}  // namespace colibri::cli
