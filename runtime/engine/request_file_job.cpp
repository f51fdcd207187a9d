#include "runtime/engine/request_file_job.hpp"

#include <unistd.h>

#include <filesystem>
#include <span>
#include <utility>

#include "io/text/jsonl_reader.hpp"
#include "io/text/prompt_estimate.hpp"
#include "io/text/request_parser.hpp"
#include "io/text/result_stream.hpp"
#include "io/text/tokenizer.hpp"
#include "stages/jsonl_sink.hpp"
#include "stages/jsonl_source.hpp"

namespace colibri {
namespace {

// Files and folders are not; neither is what does not exist, so that the error is one of opening it.
bool can_be_read_only_once(const std::string& input) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(input, ignored).type();
  using enum std::filesystem::file_type;
  return input == "-" || kind == fifo || kind == character || kind == socket;
}

bool is_results_file(const std::string& output) {
  return !output.empty() && output != "-" && ResultFile::fits(output);
}

}  // namespace

RequestFileJob::RequestFileJob(RequestFile file)
    : file_(std::move(file)),
      streamed_(can_be_read_only_once(file_.input)),
      to_file_(is_results_file(file_.output)) {}
RequestFileJob::~RequestFileJob() = default;

Status RequestFileJob::scan(const std::function<bool()>& stopping) {
  if (streamed_) return {};
  COLIBRI_ASSIGN_OR_RETURN(scan_, scan_requests(file_.input, stopping));
  return {};
}

// Prompts that are scored or embedded go through the model in few large steps.
Result<Workload> RequestFileJob::workload(const Container& container, const Tokenizer* tokenizer) const {
  if (streamed_ || file_.task == Task::generate) return Workload{};
  RequestDefaults defaults;
  defaults.vocab_size = container.spec().vocab_size;
  COLIBRI_ASSIGN_OR_RETURN(const PromptEstimate prompts,
                           estimate_prompts(file_.input, scan_, file_.task, defaults, tokenizer));
  return Workload{.prompts = scan_.requests, .rows = prompts.tokens, .longest_rows = prompts.longest};
}

Status RequestFileJob::open_results(const Container& container) {
  if (!to_file_) {
    COLIBRI_ASSIGN_OR_RETURN(stream_, ResultStream::open(file_.output));
    return {};
  }
  JobIdentity identity;
  identity.input = scan_.digest;
  identity.input_lines = scan_.lines;
  identity.model = container.digest();
  identity.options = "task=" + std::string(task_name(file_.task)) + " seed=" + std::to_string(file_.seed);
  COLIBRI_ASSIGN_OR_RETURN(
      results_, ResultFile::open(file_.output, file_.mode, identity, streamed_ ? "" : file_.input));
  return {};
}

Status RequestFileJob::open_source(const Engine& engine) {
  ResultWriter::TokenText token_text;
  if (const Tokenizer* tokenizer = engine.tokenizer()) {
    token_text = [tokenizer](std::int32_t token) { return tokenizer->decode(std::span(&token, 1), false); };
  }
  ResultOutput& output = results_ != nullptr ? static_cast<ResultOutput&>(*results_) : *stream_;
  sink_ = std::make_unique<JsonlSink>(output, ResultWriter(std::move(token_text)));
  auto reader = file_.input == "-"
                    ? JsonlReader::from_descriptor(UniqueDescriptor(::dup(STDIN_FILENO)), "standard input")
                    : JsonlReader::open(file_.input);
  if (!reader) return std::move(reader).status();
  JsonlSourceOptions options;
  options.task = file_.task;
  options.tokenizer = engine.tokenizer();
  options.defaults.vocab_size = engine.spec().vocab_size;
  options.defaults.job_seed = file_.seed;
  if (results_ != nullptr) options.completed = &results_->completed();
  options.check_ids = streamed_;
  source_ = std::make_unique<JsonlSource>(std::move(reader).value(), options);
  return {};
}

Status RequestFileJob::begin() { return results_ != nullptr ? results_->begin() : Status(); }

RequestSource& RequestFileJob::source() { return *source_; }
ResultSink& RequestFileJob::sink() { return *sink_; }

Status RequestFileJob::end(bool complete) {
  if (complete) COLIBRI_RETURN_IF_ERROR(source_->failure());
  if (results_ == nullptr) return {};
  return complete ? results_->finish(file_.in_order) : results_->flush();
}

std::uint64_t RequestFileJob::requests() const noexcept {
  return streamed_ ? source_->requests() : scan_.requests;
}
std::uint64_t RequestFileJob::answered() const noexcept {
  return taken_up() + sink_->succeeded() + sink_->failed();
}
std::uint64_t RequestFileJob::failed() const noexcept {
  return sink_->failed() + (results_ != nullptr ? results_->completed_failed() : 0);
}
std::uint64_t RequestFileJob::taken_up() const noexcept {
  return results_ != nullptr ? results_->completed().size() : 0;
}
std::string RequestFileJob::note() const { return results_ != nullptr ? results_->note() : std::string(); }

}  // namespace colibri
