// What the parameters of admit, attend, predict and write do, and those that every stage has.
#include <gtest/gtest.h>
#include <sched.h>

#include <bit>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>

#include "runtime/engine/pipeline.hpp"
#include "stages/list_source.hpp"
#include "stages/write.hpp"
#include "tests/cli/cli_runner.hpp"
#include "tests/engine/parameter_experiments.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/stage_harness.hpp"

namespace colibri::testing {
namespace {

std::filesystem::path model() { return golden_container("qwen3_moe", "config.json", "auto"); }

std::uint64_t metric(const RunReport& report, std::string_view stage, std::string_view name) {
  for (const StageReport& one : report.stages) {
    if (one.name == stage) return one.metric(name);
  }
  ADD_FAILURE() << "no stage " << stage;
  return 0;
}

std::vector<std::int32_t> tokens(std::size_t count) {
  std::vector<std::int32_t> all(count);
  std::iota(all.begin(), all.end(), 3);
  return all;
}

// Sixteen prompts that fill one step: one step if they may all wait for each other.
std::string steps_of(const std::string& waiting) {
  const auto engine = open_engine(model(), {{"steps.max_rows", "64"}, {"stages.admit.waiting", waiting}});
  if (engine == nullptr) return "";
  std::vector<Request> requests;
  for (int i = 0; i < 16; ++i) requests.push_back(generate_request(tokens(4), 1));
  return metric(run_job(*engine, requests).report, "admit", "steps_total") == 1 ? "one step"
                                                                                : "several steps";
}

// Keeps the order in which results come.
class OrderSink final : public ResultSink {
 public:
  Status result(RequestResult&& result) override {
    order += std::to_string(result.index) + " ";
    return {};
  }
  Status flush() override { return {}; }
  std::string order;
};

// One prompt a step; the later ones generate longer.
std::string first_to_finish(const std::string& order) {
  const auto engine = open_engine(model(), {{"steps.max_rows", "4"}, {"stages.admit.order", order}});
  if (engine == nullptr) return "";
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 6; ++i) {
    requests.push_back(generate_request(tokens(4), 1 + 2 * i));
    requests.back().ignore_eos = true;
    requests.back().index = i;
  }
  ListSource source(std::move(requests));
  OrderSink sink;
  const auto report = engine->run({.source = &source, .sink = &sink});
  EXPECT_TRUE(report.is_ok()) << report.status().to_string();
  return sink.order.substr(0, sink.order.find(' '));
}

std::string bits_of_scores(const std::string& kv_type) {
  const auto engine = open_engine(model(), {{"stages.attend.kv_type", kv_type}});
  if (engine == nullptr) return "";
  const JobRun run = run_job(*engine, {score_request(tokens(40))});
  std::string bits;
  for (const float value : run.results[0].prompt_logprobs) {
    bits += std::to_string(std::bit_cast<std::uint32_t>(value)) + " ";
  }
  return bits;
}

std::string predictions(const std::string& path, const std::string& value, std::string_view counter) {
  const auto engine = open_engine(model(), {{"stages.predict." + path, value}});
  if (engine == nullptr) return "";
  std::vector<Request> requests;
  for (const GoldenCase& one : golden_cases("qwen3_moe")) requests.push_back(generate_request(one.prompt, 4));
  return metric(run_job(*engine, requests).report, "predict", counter) > 0 ? "some" : "none";
}

// The file of a tap on the waves that route has seen, and of the other name that it could have.
std::string tapped(const std::string& param, const std::string& value) {
  const test::TemporaryFolder folder;
  std::map<std::string, std::string> params = {{"file", "a"}, {"what", "hidden"}, {"layers", "all"}};
  params[param] = value;
  std::string yaml(default_pipeline_yaml());
  const std::string edge = "{from: route.waves, to: ";
  yaml.replace(yaml.find(edge), edge.size(),
               "{from: route.waves, to: tap.waves}\n  - {from: tap.waves, to: ");
  yaml.insert(yaml.find("stages:\n") + 8, "  tap: {kind: tap, file: '" + folder.file(params["file"]) +
                                              "', what: " + params["what"] + ", layers: " + params["layers"] +
                                              "}\n");
  const auto engine = open_pipeline(model(), pipeline_from(yaml, {}));
  if (engine == nullptr) return "";
  const JobRun run = run_job(*engine, {score_request(tokens(3))});
  std::string seen;
  for (const char* name : {"a", "b"}) {
    const bool there = std::filesystem::exists(folder.file(name));
    seen += std::string(name) + ": " + (there ? test::read_file(folder.file(name)) : "none") + "\n";
  }
  return seen;
}

class CountingSink final : public ResultSink {
 public:
  Status result(RequestResult&&) override { return {}; }
  Status flush() override {
    ++flushes;
    return {};
  }
  int flushes = 0;
};

std::string flushes(const std::string& seconds) {
  CountingSink sink;
  Services services;
  services.sink = &sink;
  StageHarness stage({.info = &kWriteInfo, .create = create_write}, services,
                     {.params = {{"flush_seconds", seconds}}});
  for (int i = 0; i < 3; ++i) {
    auto outcome = std::make_unique<Outcome>();
    outcome->done = true;
    stage.send(0, {.type = MessageType::outcome, .object = outcome.release()});
    stage.resume();
  }
  return sink.flushes > 0 ? "flushed before the end" : "not flushed before the end";
}

// Looks at what its thread may do, and ends.
std::string& seen_by_probe() {
  static std::string seen;
  return seen;
}

class Probe final : public Stage {
 public:
  Status start(StageContext& context) override {
    workers_ = context.workers();
    return {};
  }
  Wait on_message(Message&, Emitter&) override { return Wait::none; }
  Wait resume(Emitter& out) override {
    if (!done_) {
      cpu_set_t set;
      CPU_ZERO(&set);
      ::sched_getaffinity(0, sizeof set, &set);
      seen_by_probe() = std::to_string(workers_) + " workers on";
      for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &set)) seen_by_probe() += " " + std::to_string(cpu);
      }
      out.end();
    }
    done_ = true;
    return Wait::input;
  }

 private:
  std::uint32_t workers_ = 0;
  bool done_ = false;
};

constexpr StageInfo kProbeInfo = {.kind = "probe", .help = "looks at its thread", .source = true};

// A pipeline of one stage, on a machine that has the CPUs 0 and 1 of this one as a node each.
std::string probe(const std::string& param, const std::string& value) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || !CPU_ISSET(0, &allowed) ||
      !CPU_ISSET(1, &allowed)) {
    return "";
  }
  Registry registry;
  EXPECT_TRUE(
      registry.add({.info = &kProbeInfo, .create = [] { return std::unique_ptr<Stage>(new Probe); }}));
  PipelineProblems problems;
  const PipelineSpec spec =
      parse_pipeline("version: 1\nstages: {probe: {kind: probe, " + param + ": " + value + "}}\nedges: []\n",
                     "probe", registry.infos(), {}, problems);
  EXPECT_TRUE(problems.to_status().is_ok()) << problems.to_status().to_string();
  auto machine = read_machine();
  EXPECT_TRUE(machine.is_ok());
  machine->cpus = {0, 1};
  machine->nodes.resize(2);
  for (std::uint32_t node = 0; node < 2; ++node) {
    machine->nodes[node].index = node;
    machine->nodes[node].cpus = {node};
  }
  ModelSpec no_model;
  no_model.num_experts = 1;
  Services services;
  services.plan.spec = &no_model;
  services.plan.max_rows = services.plan.wave_rows = 1;
  services.plan.threads = 2;
  const PlacementPlan placement = place_pipeline(spec, registry.infos(), *machine);
  Pipeline::Options options;
  options.placement = &placement;
  const std::uint64_t no_memory[] = {0};
  auto pipeline = Pipeline::build(spec, registry, services, no_memory, {}, options);
  EXPECT_TRUE(pipeline.is_ok()) << pipeline.status().to_string();
  seen_by_probe().clear();
  EXPECT_TRUE((*pipeline)->start().is_ok());
  (*pipeline)->wait();
  (*pipeline)->stop();
  return seen_by_probe();
}

}  // namespace

std::vector<Experiment> schedule_experiments() {
  const auto of_stage = [](const char* param) {
    return [param](const std::string& value) { return probe(param, value); };
  };
  return {
      {"admit.waiting", "auto", "1", steps_of},
      {"admit.order", "input", "longest_first", first_to_finish},
      {"attend.kv_type", "f32", "bf16", bits_of_scores},
      {"predict.method", "none", "next_router",
       [](const std::string& value) { return predictions("method", value, "guesses_total"); }},
      {"predict.depth", "1", "2",
       [](const std::string& value) { return predictions("depth", value, "picks_named_depth2_total"); }},
      {"tap.file", "a", "b", [](const std::string& value) { return tapped("file", value); }},
      {"tap.what", "hidden", "routes", [](const std::string& value) { return tapped("what", value); }},
      {"tap.layers", "all", "'1'", [](const std::string& value) { return tapped("layers", value); }},
      {"write.flush_seconds", "0", "3600", flushes},
      {"*.workers", "1", "2", of_stage("workers")},
      {"*.numa_node", "0", "1", of_stage("numa_node")},
      {"*.cpus", "0", "1", of_stage("cpus")},
  };
}

}  // namespace colibri::testing
