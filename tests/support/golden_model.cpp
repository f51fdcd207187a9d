#include "tests/support/golden_model.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/checkpoint/convert.hpp"
#include "stages/list_source.hpp"

namespace colibri::testing {
namespace fs = std::filesystem;
namespace {

// A folder of this process, removed when it ends.
const fs::path& scratch_folder() {
  struct Folder {
    fs::path path = fs::temp_directory_path() / ("colibri-test-" + std::to_string(::getpid()));
    Folder() { fs::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

class ListSink final : public ResultSink {
 public:
  Status result(RequestResult&& result) override {
    EXPECT_TRUE(results.emplace(result.index, std::move(result)).second) << "a second result for one request";
    return {};
  }
  Status flush() override { return {}; }
  std::map<std::uint64_t, RequestResult> results;
};

}  // namespace

fs::path golden_folder(const std::string& name) { return fs::path(COLIBRI_TEST_DATA) / "golden" / name; }

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(COLIBRI_TEST_DATA) / "golden")) {
    if (fs::exists(entry.path() / "golden.json")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<GoldenCase> golden_cases(const std::string& name) {
  std::ifstream file(golden_folder(name) / "golden.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  std::vector<GoldenCase> cases;
  for (const auto& item : golden.at("cases")) {
    GoldenCase one;
    one.name = item.at("name");
    one.prompt = item.at("prompt_ids").get<std::vector<std::int32_t>>();
    one.greedy = item.at("greedy_ids").get<std::vector<std::int32_t>>();
    one.top8_last = item.at("top8_last").get<std::vector<std::pair<std::int32_t, float>>>();
    one.prompt_logprobs = item.at("prompt_logprobs").get<std::vector<float>>();
    if (item.contains("routing")) {
      for (const auto& layer : item.at("routing")) {
        one.routing.push_back({layer.at("layer"), layer.at("experts").get<std::vector<std::vector<std::uint32_t>>>(),
                               layer.at("weights").get<std::vector<std::vector<float>>>()});
      }
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

fs::path container_of(const fs::path& checkpoint, const std::string& config, const std::string& weights) {
  const std::string key = checkpoint.filename().string() + "-" + config + "-" + weights;
  const fs::path output = scratch_folder() / key;
  if (fs::exists(output)) return output;
  // The converter reads config.json: a checkpoint with another config is a folder of links.
  fs::path source = checkpoint;
  if (config != "config.json") {
    source = scratch_folder() / (key + "-checkpoint");
    fs::create_directories(source);
    for (const auto& entry : fs::directory_iterator(checkpoint)) {
      const std::string file = entry.path().filename();
      if (file == "config.json") continue;
      fs::create_symlink(entry.path(), source / (file == config ? "config.json" : file));
    }
  }
  ConvertOptions options;
  options.weights = weights;
  const auto converted = convert_checkpoint(source, output, options);
  EXPECT_TRUE(converted.is_ok()) << key << ": " << converted.status().to_string();
  return converted ? output : fs::path();
}

fs::path golden_container(const std::string& name, const std::string& config, const std::string& weights) {
  return container_of(golden_folder(name), config, weights);
}

PipelineSpec pipeline_with(const std::vector<std::pair<std::string, std::string>>& settings) {
  return pipeline_from(default_pipeline_yaml(), settings);
}

std::string config_text(const std::string& name) {
  std::ifstream file(fs::path(COLIBRI_TEST_DATA).parent_path() / "configs" / name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

PipelineSpec pipeline_from(std::string_view yaml,
                           const std::vector<std::pair<std::string, std::string>>& settings) {
  const Registry registry = builtin_registry();
  std::vector<Override> overrides;
  // Enough for any golden, and small: the automatic size is meant for one model a machine.
  overrides.push_back({"memory.dynamic", "128MiB", {.kind = Origin::Kind::command_line, .file = "test"}});
  for (const auto& [path, value] : settings) {
    overrides.push_back({path, value, {.kind = Origin::Kind::command_line, .file = "test"}});
  }
  PipelineProblems problems;
  const auto infos = registry.infos();
  PipelineSpec spec = parse_pipeline(yaml, "test.yaml", infos, overrides, problems);
  check_pipeline(spec, infos, problems);
  EXPECT_TRUE(problems.to_status().is_ok()) << problems.to_status().to_string();
  return spec;
}

std::unique_ptr<Engine> open_engine(const fs::path& container,
                                    const std::vector<std::pair<std::string, std::string>>& settings,
                                    const std::string& kernels) {
  return open_pipeline(container, pipeline_with(settings), kernels);
}

std::unique_ptr<Engine> open_pipeline(const fs::path& container, PipelineSpec pipeline, const std::string& kernels) {
  EngineOptions options;
  options.kernels = kernels;
  auto engine = Engine::open(container, std::move(pipeline), options);
  EXPECT_TRUE(engine.is_ok()) << engine.status().to_string();
  return engine ? std::move(engine).value() : nullptr;
}

JobRun run_job(Engine& engine, std::vector<Request> requests, const JobRunOptions& options) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].index = i;
    requests[i].id = std::to_string(i);
  }
  const std::size_t count = requests.size();
  ListSource source(std::move(requests));
  ListSink sink;
  Job job;
  job.source = &source;
  job.sink = &sink;
  job.trace = options.trace;
  job.stepped = options.stepped;
  job.inject_blocking = options.inject_blocking;
  job.lose_wakes = options.lose_wakes;
  job.read_drives = options.read_drives;
  job.virtual_device = options.virtual_device;
  auto report = engine.run(job);
  EXPECT_TRUE(report.is_ok()) << report.status().to_string();
  JobRun run;
  run.results.resize(count);
  EXPECT_EQ(sink.results.size(), count);
  for (auto& [index, result] : sink.results) run.results[index] = std::move(result);
  if (report) run.report = std::move(report).value();
  return run;
}

Request generate_request(std::vector<std::int32_t> prompt, std::uint32_t max_tokens) {
  Request request;
  request.task = Task::generate;
  request.tokens = std::move(prompt);
  request.max_tokens = max_tokens;
  request.max_tokens_given = true;
  return request;
}

Request score_request(std::vector<std::int32_t> prompt) {
  Request request;
  request.task = Task::score;
  request.tokens = std::move(prompt);
  return request;
}

void ValueRecorder::values(std::string_view name, std::uint32_t layer, const Sequence&, std::uint32_t position,
                           std::span<const float> row) {
  const std::lock_guard lock(mutex_);
  rows[{std::string(name), layer}][position].assign(row.begin(), row.end());
}

void ValueRecorder::routing(std::uint64_t, std::uint64_t, const Sequence&, std::uint32_t position, std::uint32_t layer,
                            std::span<const std::uint32_t> experts, std::span<const float> weights) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < experts.size(); ++i) picks[{layer, position}][experts[i]] = weights[i];
}

std::vector<float> ValueRecorder::tensor(const std::string& name, std::uint32_t layer) const {
  std::vector<float> all;
  const auto found = rows.find({name, layer});
  if (found == rows.end()) return all;
  for (const auto& [position, row] : found->second) all.insert(all.end(), row.begin(), row.end());
  return all;
}

}  // namespace colibri::testing
