// A host program with a stage kind of its own: `expert_usage` sits between `route` and
// `combine`, counts how often each expert is picked, and tells at the end.
//
//   host_stage MODEL pipeline.yaml
#include <algorithm>
#include <colibri/engine.hpp>
#include <colibri/registry.hpp>
#include <colibri/tokenizer.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {

// ---- The stage kind: its description, and the class ------------------------------------------

constexpr colibri::PortInfo kInputs[] = {
    {.name = "waves",
     .type = colibri::MessageType::wave,
     .help = "waves with their picks",
     .state = "routed"},
};
constexpr colibri::PortInfo kOutputs[] = {
    {.name = "waves", .type = colibri::MessageType::wave, .help = "the same waves", .state = "routed"},
};
constexpr colibri::ParamInfo kParams[] = {
    {.name = "top",
     .type = colibri::ParamType::integer,
     .unit = "experts",
     .default_value = "3",
     .minimum = 1,
     .maximum = 64,
     .help = "most used experts that are shown of each layer"},
};
constexpr colibri::MetricInfo kMetrics[] = {{"picks_total", "picks counted"}};

constexpr colibri::StageInfo kExpertUsageInfo = {
    .kind = "expert_usage",
    .help = "counts how often each expert is picked",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = kParams,
    .metrics = kMetrics,
    .max_emits = 1,
};

class ExpertUsage final : public colibri::Stage {
 public:
  colibri::Status start(colibri::StageContext& context) override {
    const colibri::ModelSpec& spec = *context.services().plan.spec;
    experts_ = spec.num_experts;
    picks_per_row_ = spec.num_experts_per_token;
    uses_.assign(spec.num_layers(), std::vector<std::uint64_t>(experts_));  // [layers][experts]
    top_ = context.integer("top");
    picks_ = context.counter("picks_total");
    return {};
  }

  colibri::Wait on_message(colibri::Message& message, colibri::Emitter& out) override {
    const colibri::Wave& wave = *message.wave();
    const std::size_t first = std::size_t{wave.row_begin} * picks_per_row_;
    const std::size_t last = std::size_t{wave.row_end} * picks_per_row_;
    for (std::size_t pick = first; pick < last; ++pick) ++uses_[wave.layer][wave.step->picks[pick]];
    picks_->add(last - first);
    out.emit(0, message);
    return colibri::Wait::none;
  }

  void end_of_input(colibri::Emitter&) override {
    for (std::size_t layer = 0; layer < uses_.size(); ++layer) print(layer);
  }

 private:
  void print(std::size_t layer) const {
    const std::vector<std::uint64_t>& uses = uses_[layer];
    const std::uint64_t total = std::accumulate(uses.begin(), uses.end(), std::uint64_t{0});
    if (total == 0) return;  // a dense layer
    std::vector<std::size_t> order(experts_);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return uses[a] > uses[b]; });
    std::cerr << "layer " << layer << ":";
    for (std::size_t i = 0; i < std::min<std::size_t>(top_, experts_); ++i) {
      std::cerr << "  expert " << order[i] << " " << 100 * uses[order[i]] / total << " %";
    }
    std::cerr << "\n";
  }

  std::uint32_t experts_ = 0, picks_per_row_ = 0;
  std::uint64_t top_ = 0;
  std::vector<std::vector<std::uint64_t>> uses_;
  colibri::Counter* picks_ = nullptr;
};

std::unique_ptr<colibri::Stage> create_expert_usage() { return std::make_unique<ExpertUsage>(); }

// ---- The job: prompts in, text out -----------------------------------------------------------

class Prompts final : public colibri::RequestSource {
 public:
  explicit Prompts(const colibri::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Pull pull(colibri::Request& request) override {
    static constexpr const char* kTexts[] = {"In the beginning", "LEAR. ", "def main", "Shall I compare"};
    if (next_ == std::size(kTexts)) return Pull::end;
    request.index = next_;
    request.max_tokens = 24;
    auto tokens = tokenizer_.encode(kTexts[next_++], /*add_special_tokens=*/true);
    if (tokens) request.tokens = std::move(tokens).value();
    if (!tokens) request.error = tokens.status();
    return Pull::request;
  }
  bool finite() const override { return true; }
  void on_ready(std::function<void()>) override {}  // only asked after Pull::wait

 private:
  const colibri::Tokenizer& tokenizer_;
  std::size_t next_ = 0;
};

// Keeps the texts: results come as they complete, and are shown in the order of the prompts.
class Texts final : public colibri::ResultSink {
 public:
  colibri::Status result(colibri::RequestResult&& result) override {
    texts_.resize(std::max<std::size_t>(texts_.size(), result.index + 1));
    texts_[result.index] = result.error.is_ok() ? result.text : result.error.to_string();
    return {};
  }
  colibri::Status flush() override { return {}; }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
};

int fail(const colibri::Status& status) {
  std::cerr << status.to_string() << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: host_stage MODEL PIPELINE.yaml\n";
    return 2;
  }
  // The built-in kinds, and one more: from here on, files may name it.
  colibri::Registry registry = colibri::builtin_registry();
  if (colibri::Status added = registry.add({&kExpertUsageInfo, create_expert_usage}); !added)
    return fail(added);

  std::ifstream file(argv[2]);
  const std::string yaml(std::istreambuf_iterator<char>(file), {});
  const std::vector<const colibri::StageInfo*> kinds = registry.infos();
  colibri::PipelineProblems problems;
  colibri::PipelineSpec pipeline = colibri::parse_pipeline(yaml, argv[2], kinds, {}, problems);
  colibri::check_pipeline(pipeline, kinds, problems);
  if (colibri::Status status = problems.to_status(); !status) return fail(status);

  colibri::EngineOptions options;
  options.registry = &registry;
  auto engine = colibri::Engine::open(argv[1], std::move(pipeline), options);
  if (!engine) return fail(engine.status());
  if (engine.value()->tokenizer() == nullptr) return 1;  // such a model takes token ids only
  Prompts prompts(*engine.value()->tokenizer());
  Texts texts;
  auto report = engine.value()->run({.source = &prompts, .sink = &texts});
  if (!report) return fail(report.status());
  for (const std::string& text : texts.texts()) std::cout << text << "\n";
  for (const colibri::StageReport& stage : report->stages) {
    if (stage.kind == "expert_usage") std::cerr << stage.metric("picks_total") << " picks\n";
  }
}
