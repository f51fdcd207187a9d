#include <colibri/engine.hpp>
#include <colibri/tokenizer.hpp>
#include <iostream>
#include <utility>
#include <vector>

// Where requests come from: a file, a queue, or as here a list.
class Prompts final : public colibri::RequestSource {
 public:
  Prompts(std::vector<std::string> texts, const colibri::Tokenizer& tokenizer)
      : texts_(std::move(texts)), tokenizer_(tokenizer) {}

  Pull pull(colibri::Request& request) override {
    if (next_ == texts_.size()) return Pull::end;
    request.index = next_;
    request.max_tokens = 16;
    auto tokens = tokenizer_.encode(texts_[next_++], /*add_special_tokens=*/true);
    if (tokens) request.tokens = std::move(tokens).value();
    if (!tokens) request.error = tokens.status();
    return Pull::request;
  }
  bool finite() const override { return true; }
  void on_ready(std::function<void()>) override {}  // only asked after Pull::wait

 private:
  std::vector<std::string> texts_;
  const colibri::Tokenizer& tokenizer_;
  std::size_t next_ = 0;
};

// Where results go, as they complete; called from a worker thread, one at a time.
class Printer final : public colibri::ResultSink {
 public:
  colibri::Status result(colibri::RequestResult&& result) override {
    std::cout << result.index << ": " << (result.error.is_ok() ? result.text : result.error.to_string()) << "\n";
    return {};
  }
  colibri::Status flush() override { return {}; }
};

int fail(const colibri::Status& status) {
  std::cerr << status.to_string() << "\n";
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const colibri::Registry registry = colibri::builtin_registry();
  const colibri::Override settings[] = {{"memory.experts", "25%", {}}, {"memory.dynamic", "64MiB", {}}};
  colibri::PipelineProblems problems;
  colibri::PipelineSpec pipeline = colibri::parse_pipeline(colibri::default_pipeline_yaml(), "built-in",
                                                           registry.infos(), settings, problems);
  if (colibri::Status status = problems.to_status(); !status) return fail(status);
  auto engine = colibri::Engine::open(argv[1], std::move(pipeline), {});
  if (!engine) return fail(engine.status());
  const colibri::Tokenizer* tokenizer = engine.value()->tokenizer();
  if (tokenizer == nullptr) return 1;  // such a model takes token ids only
  Prompts prompts({"In the beginning", "LEAR. "}, *tokenizer);
  Printer printer;
  auto report = engine.value()->run({.source = &prompts, .sink = &printer});
  if (!report) return fail(report.status());
  std::cout << report->generated_tokens << " tokens, " << report->reads_per_visit() << " reads a visit\n";
}
