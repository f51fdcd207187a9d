// colibri generate: one prompt, the text as it is made.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "runtime/cli/engine_session.hpp"
#include "runtime/cli/one_request.hpp"
#include "runtime/cli/stop_signals.hpp"
#include "runtime/cli/value_checks.hpp"
#include "runtime/cli/verb_flags.hpp"

namespace colibri::cli {
namespace {

struct GenerateArguments {
  std::string model;
  std::string prompt;
  std::uint32_t max_tokens = 128;
  bool max_tokens_given = false;  // then it is refused, not shortened, when the context has no room
  float temperature = 0;
  float top_p = 1;
  std::uint32_t top_k = 0;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  PipelineFlags pipeline;
};

ExitStatus run_generate(const GenerateArguments& arguments, VerbContext& context) {
  auto signals = StopSignals::start();
  if (!signals) return context.fail(signals.status());
  auto session =
      EngineSession::open(arguments.model, arguments.pipeline, context, {.stopping = (*signals)->stopping()});
  if (!session && (*signals)->caused(session.status())) return exit_status_of_signal((*signals)->received());
  if (!session) return context.fail(Status(session.status()).at("generate"));
  Engine& engine = (*session)->engine();
  if (engine.tokenizer() == nullptr) {
    return context.fail(Status(ErrorCode::unsupported,
                               "the container has no tokenizer, so it takes no text: " + arguments.model +
                                   "; use `colibri batch` with token ids")
                            .at("generate"));
  }
  auto tokens = engine.tokenizer()->encode(arguments.prompt, true);
  if (!tokens) return context.fail(Status(tokens.status()).at("generate"));
  Request request;
  request.id = "generate";
  request.tokens = std::move(tokens).value();
  request.max_tokens = arguments.max_tokens;
  request.max_tokens_given = arguments.max_tokens_given;
  request.temperature = arguments.temperature;
  request.top_p = arguments.top_p;
  request.top_k = arguments.top_k;
  request.seed = arguments.seed;
  request.stop = arguments.stop;
  request.ignore_eos = arguments.ignore_eos;
  request.stream = true;
  RequestsOptions options;
  // A reader that has gone ends the run. Pieces come one at a time; the flag is looked at by other threads.
  Status written;
  std::atomic<bool> reader_gone = false;
  options.piece = [&](std::string_view piece) {
    if (reader_gone) return;
    context.console.print(piece);
    written = context.console.flush();
    if (!written) reader_gone = true;
  };
  options.stopping = [&] { return (*signals)->received() != 0 || reader_gone; };
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  auto run = [&] {
    const CancelOnSignal cancel(**signals, [&engine] { engine.cancel(); });
    return run_requests(engine, std::move(requests), options);
  }();
  if (!run && (*signals)->caused(run.status())) {
    context.console.print("\n");
    return exit_status_of_signal((*signals)->received());
  }
  if (!run) return context.fail(Status(run.status()).at("generate"));
  if (reader_gone) return context.fail(std::move(written).at("generate"));
  context.console.print("\n");
  if (const int signal = (*signals)->received(); signal != 0) return exit_status_of_signal(signal);
  if (Status error = run->results.front().error; !error) return context.fail(std::move(error).at("generate"));
  if (Status saved = (*session)->write_profile(run->report); !saved)
    return context.fail(std::move(saved).at("generate"));
  return ExitStatus::ok;
}

}  // namespace

void add_generate(Verb& program, VerbContext& context) {
  Verb verb = program.verb("generate", "Continue one prompt; the text is printed as it is made");
  verb.footer(
      "Examples:\n"
      "  colibri generate model -p 'In the beginning' --max-tokens 64\n"
      "  colibri generate model -p 'Once' --temperature 0.8 --top-p 0.95 --seed 7 --stop $'\\n\\n'");
  auto arguments = std::make_shared<GenerateArguments>();
  verb.positional("MODEL", arguments->model, "Container folder").required();
  verb.option("-p,--prompt", arguments->prompt, "The prompt").required();
  const Option max_tokens = verb.option("--max-tokens", arguments->max_tokens, "Tokens to generate at most")
                                .range(1U, 0x7fffffffU)
                                .show_default();
  verb.option("--temperature", arguments->temperature, "0: the likeliest token each time")
      .check(check_is_number, "NUMBER")
      .range(0.0, 100.0)
      .show_default();
  verb.option("--top-p", arguments->top_p, "Share of probability to draw from")
      .check(check_is_number, "NUMBER")
      .range(1e-6, 1.0)
      .show_default();
  verb.option("--top-k", arguments->top_k, "Tokens to draw from; 0: all")
      .check(check_is_unsigned, "INTEGER")
      .show_default();
  verb.option("--seed", arguments->seed, "Seed of the draws")
      .check(check_is_unsigned, "INTEGER")
      .show_default();
  verb.option("--stop", arguments->stop, "Text that ends the answer; may be repeated")
      .check(check_not_empty, "TEXT")
      .one_value_each();
  verb.flag("--ignore-eos", arguments->ignore_eos, "Go on after an end token");
  add_pipeline_flags(verb, arguments->pipeline);
  add_quiet_flag(verb, context);
  verb.on_run(context, [arguments, &context, max_tokens] {
    arguments->max_tokens_given = max_tokens.given();
    return run_generate(*arguments, context);
  });
}

}  // namespace colibri::cli
