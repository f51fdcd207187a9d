// colibri trace: one prompt through the whole pipeline, with every intermediate value kept.
//
// The tensors have the names that the golden checkpoints use, so that a difference can be
// followed to the first layer that shows it.
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/checkpoint/safetensors.hpp"
#include "io/container/file_handle.hpp"
#include "runtime/cli/engine_session.hpp"
#include "runtime/cli/one_request.hpp"
#include "runtime/cli/verb_flags.hpp"

namespace colibri::cli {
namespace {

constexpr std::uint64_t kMaxTokensFileBytes = 64ULL << 20;

struct TraceArguments {
  std::string model;
  std::string tokens_file;
  std::string output;
  PipelineFlags pipeline;
};

// Collects rows by (name, layer) and position.
class ValueCollector final : public TraceRecorder {
 public:
  bool wants_values() const override { return true; }
  bool wants_routing() const override { return true; }

  void values(std::string_view name, std::uint32_t layer, const Sequence&, std::uint32_t position,
              std::span<const float> row) override {
    const std::lock_guard lock(mutex_);
    rows_[{std::string(name), layer}][position].assign(row.begin(), row.end());
  }

  void routing(std::uint64_t, std::uint64_t, const Sequence&, std::uint32_t position, std::uint32_t layer,
               std::span<const std::uint32_t> experts, std::span<const float> weights) override {
    const std::lock_guard lock(mutex_);
    rows_[{"experts", layer}][position].assign(experts.begin(), experts.end());
    rows_[{"weights", layer}][position].assign(weights.begin(), weights.end());
  }

  // logits, hidden_states [layers + 1, tokens, hidden]; NAME.N for the others.
  Status write(const std::string& path) const {
    SafetensorsWriter writer;
    std::vector<float> hidden;
    std::vector<std::uint64_t> hidden_shape{0, 0, 0};
    for (const auto& [key, rows] : rows_) {
      const auto& [name, layer] = key;
      std::vector<float> values;
      for (const auto& [position, row] : rows) values.insert(values.end(), row.begin(), row.end());
      const std::uint64_t width = rows.begin()->second.size();
      if (name == "hidden_states") {
        hidden.insert(hidden.end(), values.begin(), values.end());
        hidden_shape = {hidden_shape[0] + 1, rows.size(), width};
      } else if (name == "logits") {
        writer.add("logits", {rows.size(), width}, values);
      } else {
        writer.add(name + "." + std::to_string(layer), {rows.size(), width}, values);
      }
    }
    writer.add("hidden_states", hidden_shape, hidden);
    return writer.write(path);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::uint32_t>, std::map<std::uint32_t, std::vector<float>>> rows_;
};

// Token ids separated by white space or commas; brackets are allowed, so a JSON array is fine.
Result<std::vector<std::int32_t>> read_tokens(const std::string& path) {
  COLIBRI_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxTokensFileBytes));
  std::vector<std::int32_t> tokens;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    if (std::string_view(" \t\r\n,[]").find(*at) != std::string_view::npos) {
      ++at;
      continue;
    }
    std::int32_t token = 0;
    const auto [next, error] = std::from_chars(at, end, token);
    if (error != std::errc{}) {
      return Status(ErrorCode::invalid_input, "not a token id, at offset " +
                                                  std::to_string(at - text.data()) +
                                                  "; expected ids separated by spaces or commas")
          .at(path);
    }
    tokens.push_back(token);
    at = next;
  }
  return tokens;
}

ExitStatus run_trace(const TraceArguments& arguments, VerbContext& context) {
  auto tokens = read_tokens(arguments.tokens_file);
  if (!tokens) return context.fail(Status(tokens.status()).at("trace"));
  SessionOptions options;
  options.files = {{"the trace", arguments.output, true}, {"the tokens", arguments.tokens_file}};
  options.before_loading = [&](const Container&) { return check_writable(arguments.output); };
  auto session = EngineSession::open(arguments.model, arguments.pipeline, context, std::move(options));
  if (!session) return context.fail(Status(session.status()).at("trace"));
  Request request;
  request.id = "trace";
  request.task = Task::score;
  request.tokens = std::move(tokens).value();
  ValueCollector collector;
  auto result = run_one((*session)->engine(), std::move(request), &collector);
  if (!result) return context.fail(Status(result.status()).at("trace"));
  if (Status written = collector.write(arguments.output); !written)
    return context.fail(std::move(written).at("trace"));
  context.console.info("trace: wrote " + arguments.output);
  return ExitStatus::ok;
}

}  // namespace

void add_trace(Verb& program, VerbContext& context) {
  Verb verb = program.verb("trace", "Write every intermediate value of one prompt to a safetensors file");
  verb.footer(
      "Tensors: logits, hidden_states [layers + 1, tokens, hidden], and for each MoE layer N "
      "router_logits.N,\n"
      "experts.N, weights.N, moe_input.N, moe_output.N.\n\n"
      "Examples:\n"
      "  echo '[16, 19, 771, 262]' > ids.json\n"
      "  colibri trace model --tokens ids.json -o trace.safetensors");
  auto arguments = std::make_shared<TraceArguments>();
  verb.positional("MODEL", arguments->model, "Container folder").required();
  verb.option("--tokens", arguments->tokens_file, "File with the token ids of the prompt").required();
  verb.option("-o,--output", arguments->output, "safetensors file to write").required();
  add_pipeline_flags(verb, arguments->pipeline);
  verb.on_run(context, [arguments, &context] { return run_trace(*arguments, context); });
}

}  // namespace colibri::cli
