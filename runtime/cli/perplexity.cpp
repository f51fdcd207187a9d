// colibri perplexity: how well a model predicts a text.
//
// The text is cut into windows that do not overlap; each is scored as one request, its first
// token unscored. perplexity = exp(-sum of log-probabilities / number of scored tokens).
// A tokenizer whose template starts with a begin token puts one in front of each window.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "io/container/file_handle.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/cli/engine_session.hpp"
#include "runtime/cli/one_request.hpp"
#include "runtime/cli/stop_signals.hpp"
#include "runtime/cli/verb_flags.hpp"

namespace colibri::cli {
namespace {

constexpr std::uint64_t kMaxTextBytes = 1ULL << 30;

struct PerplexityArguments {
  std::string model;
  std::string file;
  std::uint32_t window = 512;
  PipelineFlags pipeline;
};

// Windows of at most `window` tokens, the begin token included; a rest of one token cannot be scored.
std::vector<Request> cut_windows(const std::vector<std::int32_t>& tokens, std::uint32_t window,
                                 std::optional<std::int32_t> begin_token) {
  std::vector<Request> requests;
  const std::size_t text_tokens = window - (begin_token ? 1 : 0);
  for (std::size_t at = 0; at < tokens.size(); at += text_tokens) {
    Request request;
    request.task = Task::score;
    request.id = std::to_string(requests.size());
    if (begin_token) request.tokens.push_back(*begin_token);
    const std::size_t end = std::min(tokens.size(), at + text_tokens);
    request.tokens.insert(request.tokens.end(), tokens.begin() + static_cast<std::ptrdiff_t>(at),
                          tokens.begin() + static_cast<std::ptrdiff_t>(end));
    if (request.tokens.size() >= 2) requests.push_back(std::move(request));
  }
  return requests;
}

ExitStatus run_perplexity(const PerplexityArguments& arguments, VerbContext& context) {
  auto fail = [&context](const Status& status) { return context.fail(Status(status).at("perplexity")); };
  auto signals = StopSignals::start();
  if (!signals) return fail(signals.status());
  auto text = read_text_file(arguments.file, kMaxTextBytes);
  if (!text) return fail(text.status());
  auto session =
      EngineSession::open(arguments.model, arguments.pipeline, context, {.stopping = (*signals)->stopping()});
  if (!session && (*signals)->caused(session.status())) return exit_status_of_signal((*signals)->received());
  if (!session) return fail(session.status());
  Engine& engine = (*session)->engine();
  if (engine.tokenizer() == nullptr) {
    return fail(Status(ErrorCode::unsupported,
                       "the container has no tokenizer, so it cannot read text: " + arguments.model));
  }
  if (arguments.window > engine.spec().max_seq_len) {
    return fail(Status(ErrorCode::invalid_input,
                       "--window is longer than the model's context: " + std::to_string(arguments.window) +
                           " > " + std::to_string(engine.spec().max_seq_len)));
  }
  auto tokens = engine.tokenizer()->encode(*text, false);
  if (!tokens) return fail(tokens.status());
  std::vector<Request> requests = cut_windows(*tokens, arguments.window, engine.tokenizer()->begin_token());
  if (requests.empty())
    return fail(Status(ErrorCode::invalid_input,
                       "nothing to score: the text has fewer than two tokens: " + arguments.file));
  const std::size_t windows = requests.size();
  auto run = [&] {
    const CancelOnSignal cancel(**signals, [&engine] { engine.cancel(); });
    return run_requests(engine, std::move(requests), {.stopping = (*signals)->stopping()});
  }();
  if (!run && !(*signals)->caused(run.status())) return fail(run.status());
  if (const int signal = (*signals)->received(); signal != 0) return exit_status_of_signal(signal);
  double sum = 0;
  std::uint64_t scored = 0;
  for (const RequestResult& result : run->results) {
    if (!result.error.is_ok()) return fail(result.error);
    for (const float logprob : result.prompt_logprobs) sum += logprob;
    scored += result.prompt_logprobs.size();
  }
  char line[200];
  std::snprintf(line, sizeof line, "perplexity %.4f  tokens %llu  windows %zu  logprob_sum %.4f\n",
                std::exp(-sum / static_cast<double>(scored)), static_cast<unsigned long long>(scored),
                windows, sum);
  context.console.print(line);
  if (!context.console.quiet()) context.console.write_report(run->report.to_table());
  if (Status written = (*session)->write_profile(run->report); !written) return fail(written);
  return ExitStatus::ok;
}

}  // namespace

void add_perplexity(Verb& program, VerbContext& context) {
  Verb verb = program.verb("perplexity", "Measure how well a model predicts a text");
  verb.footer(
      "Windows do not overlap; the first token of each is not scored.\n\n"
      "Examples:\n"
      "  colibri perplexity model book.txt --window 512");
  auto arguments = std::make_shared<PerplexityArguments>();
  verb.positional("MODEL", arguments->model, "Container folder").required();
  verb.positional("FILE", arguments->file, "Text file, UTF-8").required();
  verb.option("--window", arguments->window, "Tokens of a window, the begin token included")
      .range(2U, 1U << 24)
      .show_default();
  add_pipeline_flags(verb, arguments->pipeline);
  add_quiet_flag(verb, context);
  verb.on_run(context, [arguments, &context] { return run_perplexity(*arguments, context); });
}

}  // namespace colibri::cli
