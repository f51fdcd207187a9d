#include <colibri/session.hpp>
#include <colibri/tokenizer.hpp>
#include <iostream>
#include <utility>
#include <vector>

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

  auto session = colibri::Session::start(*engine.value());
  if (!session) return fail(session.status());
  std::vector<colibri::SubmittedRequest> requests;
  for (const char* prompt : {"In the beginning", "LEAR. "}) {
    auto tokens = tokenizer->encode(prompt, /*add_special_tokens=*/true);
    if (!tokens) return fail(tokens.status());
    auto request = session.value()->submit({.tokens = std::move(tokens).value(), .max_tokens = 16});
    if (!request) return fail(request.status());
    requests.push_back(std::move(request).value());
  }
  // Requests that are open together share steps. A callback, or asking whether it is done, would do as well.
  for (const colibri::SubmittedRequest& request : requests) {
    const colibri::RequestResult& result = request.wait();
    std::cout << result.index << ": " << (result.error.is_ok() ? result.text : result.error.to_string()) << "\n";
  }
  auto report = session.value()->close();
  if (!report) return fail(report.status());
  std::cout << report->generated_tokens << " tokens, " << report->reads_per_visit() << " reads a visit\n";
}
