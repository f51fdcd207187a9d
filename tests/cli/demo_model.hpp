// The demo model as tests of the verbs use it: converted once by the program itself, with its
// requests, and what comes out of `colibri batch` parsed into JSON.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/cli_runner.hpp"

namespace colibri::test {

using Json = nlohmann::ordered_json;  // keeps the order of fields, which is part of the format

// Folder of the demo's container, made by `colibri convert` at the first call in this process.
// Ends the test process when that fails: nothing could be tested then.
const std::string& demo_model();
std::string demo_file(const std::string& name);  // of configs/demo
std::vector<Json> demo_requests();
// The first `count` of the demo's shortest prompts, with that many tokens at most.
std::vector<Json> short_requests(std::size_t count, int max_tokens);
// Requests of jobs that are compared with each other: all of the demo. Under a sanitizer, which makes a job
// take fifteen times as long, one of eight, cut short; one of them still ends before its last token.
std::vector<Json> compared_requests();

// Objects as lines.
std::string jsonl(const std::vector<Json>& lines);
// Lines as objects; a line that is no JSON fails the test and is left out.
std::vector<Json> parse_jsonl(const std::string& text);
// The same, by "index" (own lines) or the index in "id" (OpenAI lines); an index twice fails the test.
std::map<std::uint64_t, Json> by_index(const std::string& text);

// A copy of the container that may be damaged: the same files, hard copies.
std::string copy_of_demo_model(const TemporaryFolder& folder);

// `colibri batch` over these requests, results in `folder`.
class BatchRun {
 public:
  explicit BatchRun(const std::string& input, std::vector<std::string> flags = {},
                    const std::string& model = demo_model(), const RunOptions& options = {});
  const RunResult& run() const noexcept { return run_; }
  int status() const noexcept { return run_.status; }
  const std::string& err() const noexcept { return run_.err; }
  const std::string& text() const noexcept { return text_; }  // of the results file
  std::map<std::uint64_t, Json> results() const { return by_index(text_); }

 private:
  RunResult run_;
  std::string text_;
};

bool contains(const std::string& text, const std::string& part);

}  // namespace colibri::test
