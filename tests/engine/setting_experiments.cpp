// What the settings outside stages do.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "io/checkpoint/safetensors.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "tests/cli/cli_runner.hpp"
#include "tests/engine/parameter_experiments.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

namespace fs = std::filesystem;

fs::path model() { return golden_container("qwen3_moe", "config.json", "auto"); }

// A figure of the plan under a value of a setting; for a refused one, why.
std::string planned(const std::string& path, const std::string& value,
                    const std::function<std::uint64_t(const MemoryPlan&)>& figure) {
  const auto plan =
      plan_model(model(), pipeline_with({{path, value}}), builtin_registry(), read_machine().value());
  return plan ? std::to_string(figure(*plan)) : plan.status().to_string();
}

Experiment plan_experiment(const std::string& path, const std::string& first, const std::string& second,
                           std::function<std::uint64_t(const MemoryPlan&)> figure) {
  return {path, first, second, [path, figure = std::move(figure)](const std::string& value) {
            return planned(path, value, figure);
          }};
}

// Whether a pipeline for a machine with more NUMA nodes than any has opens here.
std::string opens_elsewhere(const std::string& value) {
  PipelineSpec spec = pipeline_with({{"virtual_placement", value}, {"stages.compute.numa_node", "1023"}});
  const auto engine = Engine::open(model(), std::move(spec), {});
  return engine ? "opens" : "is refused";
}

// Whether a batch leaves a profile where the setting says.
std::string profile_files(const std::string& name) {
  const test::TemporaryFolder folder;
  test::write_file(folder.file("in.jsonl"), "{\"tokens\": [3, 4, 5], \"max_tokens\": 2}\n");
  test::RunOptions options;
  options.working_directory = folder.path();
  const test::RunResult run =
      test::run_program({test::kColibriProgram, "batch", model().string(), "in.jsonl", "-o", "out.jsonl",
                         "--quiet", "--set", "memory.dynamic=64MiB", "--set", "profile.output=" + name},
                        options);
  EXPECT_EQ(run.status, 0) << run.err;
  return std::string("a.json ") + (fs::exists(folder.file("a.json")) ? "is" : "is not") + ", b.json " +
         (fs::exists(folder.file("b.json")) ? "is" : "is not");
}

// How far an edge fills up that a source is faster than, on one thread in a seeded order: never above its
// capacity.
std::string high_water(const std::string& capacity) {
  std::string yaml = config_text("batch.yaml");
  const std::string edge = "{from: read.requests, to: admit.requests}";
  yaml.replace(yaml.find(edge), edge.size(),
               "{from: read.requests, to: admit.requests, capacity: " + capacity + "}");
  const auto engine = open_pipeline(
      model(), pipeline_from(yaml, {{"memory.dynamic", "8MiB"}, {"stages.admit.waiting", "1"}}));
  if (engine == nullptr) return {};
  StepScheduler scheduler(3);
  const JobRun run =
      run_job(*engine, std::vector<Request>(40, generate_request({3, 4, 5}, 2)), {.stepped = &scheduler});
  for (const StageReport& stage : run.report.stages) {
    if (stage.kind != "admit") continue;
    EXPECT_LE(stage.queue_high_water, std::stoul(capacity));
    return std::to_string(stage.queue_high_water);
  }
  return {};
}

// Where a job leaves which experts it used.
std::string state_folders(const std::string& name) {
  const test::TemporaryFolder folder;
  const auto engine = open_engine(model(), {{"state_dir", name.empty() ? "" : folder.file(name)}});
  if (engine == nullptr) return "";
  run_job(*engine, {generate_request({3, 4, 5}, 2)});
  return std::string("a ") + (fs::exists(folder.file("a")) ? "is" : "is not") + ", b " +
         (fs::exists(folder.file("b")) ? "is" : "is not");
}

// What `colibri run` makes of two rows with the model that the pipeline file names.
std::string run_with_model(const std::string& name) {
  const test::TemporaryFolder folder;
  std::string yaml = test::read_file(COLIBRI_TEST_DATA "/../configs/block.yaml");
  const std::string folder_of_model = golden_container(name, "config.json", "auto").string();
  yaml.insert(yaml.find("version: 1\n") + 11, "model: '" + folder_of_model + "'\n");
  test::write_file(folder.file("block.yaml"), yaml);
  SafetensorsWriter input;
  std::vector<float> rows(2 * 64);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = 0.01F * static_cast<float>(i % 23) - 0.1F;
  input.add("moe_input.0", {2, 64}, rows);
  EXPECT_TRUE(input.write(folder.file("x.safetensors")));
  const test::RunResult run =
      test::run_colibri({"run", folder.file("block.yaml"), "--input", folder.file("x.safetensors"),
                         "--output", folder.file("y.safetensors")});
  EXPECT_EQ(run.status, 0) << run.err;
  const std::string output = test::read_file(folder.file("y.safetensors"));
  return std::to_string(std::hash<std::string>()(output));
}

}  // namespace

std::vector<Experiment> setting_experiments() {
  const auto total = [](const MemoryPlan& plan) { return plan.total_bytes; };
  return {
      plan_experiment("threads", "1", "2", [](const MemoryPlan& plan) { return plan.inputs.threads; }),
      // Pools of which the plan knows the size exactly: less is refused with the number, by name.
      plan_experiment("memory.static", "4096", "8192", total),
      plan_experiment("memory.scratch", "4096", "8192", total),
      plan_experiment("memory.dynamic", "64MiB", "128MiB",
                      [](const MemoryPlan& plan) { return plan.kv_pages; }),
      plan_experiment("memory.experts", "min", "50%", [](const MemoryPlan& plan) { return plan.slots; }),
      plan_experiment("steps.max_rows", "32", "64", [](const MemoryPlan& plan) { return plan.step_bytes; }),
      plan_experiment("steps.wave_rows", "4", "8",
                      [](const MemoryPlan& plan) { return plan.inputs.waves_per_step(); }),
      plan_experiment("steps.in_flight", "1", "2",
                      [](const MemoryPlan& plan) { return plan.inputs.wave_credits(); }),
      {"edges.capacity", "1", "7", high_water},
      {"model", "qwen3_moe", "olmoe", run_with_model},
      {"state_dir", "a", "b", state_folders},
      {"virtual_placement", "false", "true", opens_elsewhere},
      {"profile.output", "a.json", "b.json", profile_files},
  };
}

}  // namespace colibri::testing
