#include "tests/cli/demo_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace colibri::test {

namespace fs = std::filesystem;

std::string demo_file(const std::string& name) { return COLIBRI_TEST_DATA "/../configs/demo/" + name; }

const std::string& demo_model() {
  static const TemporaryFolder folder;
  static const std::string model = [] {
    std::string path = folder.file("model");
    const RunResult converted = run_colibri({"convert", demo_file("checkpoint"), path});
    if (converted.status != 0) {
      std::fprintf(stderr, "cannot convert the demo: %s\n", converted.err.c_str());
      std::abort();
    }
    return path;
  }();
  return model;
}

std::vector<Json> demo_requests() { return parse_jsonl(read_file(demo_file("prompts.jsonl"))); }

std::vector<Json> short_requests(std::size_t count, int max_tokens) {
  std::vector<Json> lines = demo_requests();
  const auto length = [](const Json& line) { return line.at("prompt").get_ref<const std::string&>().size(); };
  std::stable_sort(lines.begin(), lines.end(),
                   [&](const Json& a, const Json& b) { return length(a) < length(b); });
  lines.resize(count);
  for (Json& line : lines) line["max_tokens"] = max_tokens;
  return lines;
}

std::vector<Json> compared_requests() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t kOneOf = 8, kFirst = 4;
  constexpr int kMostTokens = 24;
  std::vector<Json> some;
  const std::vector<Json> all = demo_requests();
  for (std::size_t i = kFirst; i < all.size(); i += kOneOf) {
    some.push_back(all[i]);
    some.back()["max_tokens"] = kMostTokens;
  }
  return some;
#else
  return demo_requests();
#endif
}

std::string jsonl(const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines) text += line.dump() + "\n";
  return text;
}

std::vector<Json> parse_jsonl(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_FALSE(parsed.is_discarded()) << line;
    if (!parsed.is_discarded()) lines.push_back(std::move(parsed));
  }
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  return lines;
}

std::map<std::uint64_t, Json> by_index(const std::string& text) {
  std::map<std::uint64_t, Json> results;
  for (Json& line : parse_jsonl(text)) {
    const std::uint64_t index =
        line.contains("index")
            ? line["index"].get<std::uint64_t>()
            : std::stoull(line["id"].get<std::string>().substr(std::string("batch_req_").size()));
    EXPECT_TRUE(results.emplace(index, std::move(line)).second) << "index twice: " << index;
  }
  return results;
}

std::string copy_of_demo_model(const TemporaryFolder& folder) {
  std::string copy = folder.file("model");
  fs::copy(demo_model(), copy);
  return copy;
}

BatchRun::BatchRun(const std::string& input, std::vector<std::string> flags, const std::string& model,
                   const RunOptions& options) {
  const TemporaryFolder folder;
  write_file(folder.file("in.jsonl"), input);
  std::vector<std::string> arguments = {"batch", model, folder.file("in.jsonl"), "-o",
                                        folder.file("out.jsonl")};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  run_ = run_colibri(arguments, options);
  text_ = read_file(folder.file("out.jsonl"));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace colibri::test
