// A golden checkpoint, its expected results, and containers made from it.
#pragma once

#include <colibri/engine.hpp>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace colibri::testing {

struct GoldenRouting {
  std::uint32_t layer;
  std::vector<std::vector<std::uint32_t>> experts;  // [tokens][k]
  std::vector<std::vector<float>> weights;
};

struct GoldenCase {
  std::string name;
  std::vector<std::int32_t> prompt, greedy;
  std::vector<std::pair<std::int32_t, float>> top8_last;
  std::vector<float> prompt_logprobs;
  std::vector<GoldenRouting> routing;
};

std::vector<std::string> golden_names();  // folders of tests/golden with a golden.json, sorted
std::filesystem::path golden_folder(const std::string& name);
std::vector<GoldenCase> golden_cases(const std::string& name);

// Converts a golden checkpoint into a fresh folder of this process; the same arguments give the same folder.
// config: "config.json" or "config_v4.json". Fails the test (and returns an empty path) on an error.
std::filesystem::path golden_container(const std::string& name, const std::string& config, const std::string& weights);
// Converts any checkpoint folder the same way.
std::filesystem::path container_of(const std::filesystem::path& checkpoint, const std::string& config,
                                   const std::string& weights);

// The built-in pipeline with settings on top: {{"memory.experts", "min"}}.
PipelineSpec pipeline_with(const std::vector<std::pair<std::string, std::string>>& settings);

// The same for any pipeline file's text; it must have no problem.
PipelineSpec pipeline_from(std::string_view yaml, const std::vector<std::pair<std::string, std::string>>& settings);
std::string config_text(const std::string& name);  // of a file in configs

// An engine over the container, or null after a test failure.
std::unique_ptr<Engine> open_engine(const std::filesystem::path& container,
                                    const std::vector<std::pair<std::string, std::string>>& settings = {},
                                    const std::string& kernels = "");

std::unique_ptr<Engine> open_pipeline(const std::filesystem::path& container, PipelineSpec pipeline,
                                      const std::string& kernels = "");

struct JobRun {
  std::vector<RequestResult> results;  // by request index
  RunReport report;
};
struct JobRunOptions {
  TraceRecorder* trace = nullptr;
  StepScheduler* stepped = nullptr;
  std::function<bool()> inject_blocking;
  std::function<bool()> lose_wakes;
  std::vector<std::shared_ptr<DeviceModel>> read_drives;
  std::shared_ptr<VirtualDevice> virtual_device;
};
// Runs the requests as one job; fails the test when the job fails or a request has no result.
JobRun run_job(Engine& engine, std::vector<Request> requests, const JobRunOptions& options = {});

Request generate_request(std::vector<std::int32_t> prompt, std::uint32_t max_tokens);
Request score_request(std::vector<std::int32_t> prompt);

// Results of one name, by (layer, position).
class ValueRecorder final : public TraceRecorder {
 public:
  bool wants_values() const override { return true; }
  bool wants_routing() const override { return true; }
  void values(std::string_view name, std::uint32_t layer, const Sequence& sequence, std::uint32_t position,
              std::span<const float> row) override;
  void routing(std::uint64_t step, std::uint64_t visit, const Sequence& sequence, std::uint32_t position,
               std::uint32_t layer, std::span<const std::uint32_t> experts, std::span<const float> weights) override;
  // All rows of a tensor, by position.
  std::vector<float> tensor(const std::string& name, std::uint32_t layer) const;

  std::map<std::pair<std::string, std::uint32_t>, std::map<std::uint32_t, std::vector<float>>> rows;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::map<std::uint32_t, float>> picks;  // (layer, position)

 private:
  std::mutex mutex_;
};

}  // namespace colibri::testing
