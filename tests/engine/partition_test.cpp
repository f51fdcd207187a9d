// Experts shared out between stages: every shape of pipeline gives the bits of the built-in one, reads each
// record once a visit, and ends, whatever the memory, the steps in flight and the order of work.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "io/read/fault_backend.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "stages/fetch.hpp"
#include "tests/engine/job_source.hpp"
#include "tests/engine/shared_out_pipeline.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/small_job.hpp"
#include "topology/machine_check.hpp"

namespace colibri::testing {
namespace {

namespace fs = std::filesystem;
using Settings = std::vector<std::pair<std::string, std::string>>;
using Bits = std::vector<std::vector<std::uint32_t>>;

const fs::path& root() {
  static const fs::path folder = fs::path(COLIBRI_TEST_DATA).parent_path();
  return folder;
}
fs::path demo_container() { return container_of(root() / "configs/demo/checkpoint", "config.json", "auto"); }

std::vector<SharedOut> shapes() {
  const std::string copy = ", mode: copy, staging: 1";
  return {
      {"two_fetches", {{"0/2"}, {"1/2"}}, {{"all"}}, {{"all"}}},
      {"two_computes", {{"all"}}, {{"all"}}, {{"0-2", ", workers: 1"}, {"3-", ", workers: 2"}}},
      {"two_chains", {{"0/2"}, {"1/2"}}, {{"0/2"}, {"1/2"}}, {{"0/2"}, {"1/2"}}},
      {"two_transfers", {{"all"}}, {{"0/2", copy}, {"1/2", copy}}, {{"all"}}},
      {"everything_split",
       {{"0"}, {"1-5"}, {"6-"}},
       {{"1/2", copy}, {"0/2"}},
       {{"2/3", ", workers: 1"}, {"0/3"}, {"1/3"}}},
  };
}

// The built-in pipeline with two transfers one after the other.
std::string chained_transfers(const std::string& first, const std::string& second) {
  std::string text = shared_out_yaml(
      {.name = "chained", .fetch = {{"all"}}, .transfer = {{"all", first}}, .compute = {{"all"}}});
  const auto replace = [&](std::string_view before, const std::string& after) {
    const std::size_t at = text.find(before);
    ASSERT_NE(at, std::string::npos) << before;
    text.replace(at, before.size(), after);
  };
  replace("  compute0: {", "  transfer1: {kind: transfer" + second + "}\n  compute0: {");
  replace("  - {from: transfer0.experts, to: compute0.experts}\n",
          "  - {from: transfer0.experts, to: transfer1.experts}\n"
          "  - {from: transfer1.experts, to: compute0.experts}\n");
  replace("  - {from: compute0.released, to: transfer0.released}\n",
          "  - {from: compute0.released, to: transfer1.released}\n"
          "  - {from: transfer1.released, to: transfer0.released}\n");
  return text;
}

PipelineSpec pipeline_of(const std::string& yaml, const Settings& settings) {
  const Registry registry = builtin_registry();
  std::vector<Override> overrides = {
      {"memory.dynamic", "64MiB", {.kind = Origin::Kind::command_line, .file = "test"}}};
  for (const auto& [path, value] : settings) {
    overrides.push_back({path, value, {.kind = Origin::Kind::command_line, .file = "test"}});
  }
  PipelineProblems problems;
  const auto infos = registry.infos();
  PipelineSpec spec = parse_pipeline(yaml, "shared.yaml", infos, overrides, problems);
  check_pipeline(spec, infos, problems);
  EXPECT_EQ(problems.to_status().to_string(), Status().to_string()) << yaml;
  return spec;
}

std::unique_ptr<Engine> open_shared(const fs::path& container, const std::string& yaml,
                                    const Settings& settings) {
  auto engine = Engine::open(container, pipeline_of(yaml, settings), {});
  EXPECT_TRUE(engine.is_ok()) << engine.status().to_string();
  return engine ? std::move(engine).value() : nullptr;
}

std::vector<Request> requests(const std::vector<std::vector<std::int32_t>>& prompts, std::size_t count) {
  std::vector<Request> all;
  for (std::size_t i = 0; i < count; ++i) {
    const std::vector<std::int32_t>& prompt = prompts[i % prompts.size()];
    if (i % 3 == 2) {
      all.push_back(score_request(prompt));
      if (i % 2 == 1) all.back().task = Task::embed;
      continue;
    }
    all.push_back(generate_request(prompt, 4 + static_cast<std::uint32_t>(i % 3) * 2));
    all.back().ignore_eos = true;
    all.back().logprobs = 1;
    all.back().logprobs_given = true;
  }
  return all;
}

std::vector<std::vector<std::int32_t>> golden_prompts(const std::string& model) {
  std::vector<std::vector<std::int32_t>> prompts;
  for (const GoldenCase& one : golden_cases(model)) prompts.push_back(one.prompt);
  return prompts;
}

// Token ids of the demo's vocabulary, from a formula: any will do.
std::vector<std::vector<std::int32_t>> demo_prompts() {
  std::vector<std::vector<std::int32_t>> prompts(6);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (std::size_t at = 0; at < 5 + 6 * i; ++at) {
      prompts[i].push_back(static_cast<std::int32_t>((37 * i + 101 * at * at + 11) % 4000));
    }
  }
  return prompts;
}

std::uint64_t sum_of(const RunReport& report, std::string_view kind, std::string_view metric) {
  std::uint64_t sum = 0;
  for (const StageReport& stage : report.stages) sum += stage.kind == kind ? stage.metric(metric) : 0;
  return sum;
}

// Runs the shapes under every memory and number of steps in flight, against the built-in pipeline.
void expect_equal(const fs::path& container, const std::vector<std::vector<std::int32_t>>& prompts) {
  const Settings steps = {{"steps.max_rows", "40"}, {"steps.wave_rows", "9"}};
  const std::vector<Request> job = requests(prompts, 9);
  Settings plain = steps;
  plain.emplace_back("memory.experts", "100%");
  const auto reference = open_engine(container, plain);
  ASSERT_NE(reference, nullptr);
  const JobRun expected = run_job(*reference, job);
  for (const SharedOut& shape : shapes()) {
    for (const char* experts : {"100%", "25%", "min"}) {
      for (const char* in_flight : {"1", "2"}) {
        SCOPED_TRACE(shape.name + " " + experts + " in flight " + in_flight);
        Settings settings = steps;
        settings.insert(settings.end(), {{"memory.experts", experts}, {"steps.in_flight", in_flight}});
        const auto engine = open_shared(container, shared_out_yaml(shape), settings);
        ASSERT_NE(engine, nullptr);
        const JobRun run = run_job(*engine, job);
        EXPECT_EQ(result_bits(run), result_bits(expected));
        EXPECT_EQ(run.report.bytes_read, run.report.distinct_bytes);
        EXPECT_GT(run.report.bytes_read, 0U);
        // Totals are those of all stages of a kind: all work is done once, by somebody, and by each.
        EXPECT_EQ(run.report.demands, sum_of(run.report, "fetch", "demands_total"));
        EXPECT_EQ(run.report.demands, sum_of(run.report, "route", "distinct_experts_total"));
        if (std::string_view(in_flight) == "1") {
          EXPECT_EQ(sum_of(run.report, "compute", "rows_total"),
                    sum_of(expected.report, "compute", "rows_total"));
        }
        for (const StageReport& stage : run.report.stages) {
          if (stage.kind == "fetch") {
            EXPECT_GT(stage.metric("demands_total"), 0U) << stage.name;
          } else if (stage.kind == "compute") {
            EXPECT_GT(stage.metric("rows_total"), 0U) << stage.name;
          } else if (stage.kind == "transfer" && shape.name == "two_transfers") {
            EXPECT_GT(stage.metric("copied_bytes_total"), 0U) << stage.name;
          }
        }
      }
    }
  }
}

TEST(SharedExperts, TheDemoModelGivesTheBitsOfTheBuiltInPipeline) {
  expect_equal(demo_container(), demo_prompts());
}

TEST(SharedExperts, AModelWithASharedExpertDoesToo) {
  expect_equal(golden_container("qwen2_moe", "config.json", "auto"), golden_prompts("qwen2_moe"));
}

// Two transfers one after the other: messages go past those that hand slots over, and the others copy.
TEST(SharedExperts, TransfersOneAfterTheOther) {
  const std::string copy = ", mode: copy, staging: 2";
  const std::vector<Request> job = requests(demo_prompts(), 6);
  const Settings settings = {{"memory.experts", "25%"},
                             {"steps.max_rows", "40"},
                             {"steps.wave_rows", "9"},
                             {"steps.in_flight", "2"}};
  const auto reference = open_engine(demo_container(), settings);
  ASSERT_NE(reference, nullptr);
  const Bits expected = result_bits(run_job(*reference, job));
  for (const auto& [first, second] :
       {std::pair<std::string, std::string>{"", ""}, {"", copy}, {copy, ""}, {copy, copy}}) {
    SCOPED_TRACE("first" + first + ", second" + second);
    const auto engine = open_shared(demo_container(), chained_transfers(first, second), settings);
    ASSERT_NE(engine, nullptr);
    const JobRun run = run_job(*engine, job);
    EXPECT_EQ(result_bits(run), expected);
    EXPECT_EQ(run.report.bytes_read, run.report.distinct_bytes);
    for (const StageReport& stage : run.report.stages) {
      if (stage.kind != "transfer") continue;
      EXPECT_EQ(stage.items == 0, (stage.name == "transfer0" ? first : second).empty()) << stage.name;
    }
  }
}

// Hints pass all fetches, and each uses those of its own experts.
TEST(SharedExperts, EveryFetchReadsAhead) {
  const auto engine =
      open_shared(demo_container(), shared_out_yaml(shapes()[0]),
                  {{"memory.experts", "25%"}, {"steps.max_rows", "40"}, {"steps.wave_rows", "9"}});
  ASSERT_NE(engine, nullptr);
  const JobRun run = run_job(*engine, requests(demo_prompts(), 24));
  for (const StageReport& stage : run.report.stages) {
    if (stage.kind != "fetch") continue;
    EXPECT_GT(stage.metric("hint_reads_total"), 0U) << stage.name;
    EXPECT_GT(stage.metric("useful_hints_total") + stage.metric("late_hints_total"), 0U) << stage.name;
  }
  EXPECT_EQ(run.report.bytes_read, run.report.distinct_bytes);
}

// 48 unless COLIBRI_TEST_SCALE says less.
int seeds() { return scaled(48, 4); }

TEST(SharedExperts, AnyOrderOfWorkGivesTheSameBits) {
  const auto container = golden_container("qwen2_moe", "config.json", "auto");
  const std::vector<Request> job = requests(golden_prompts("qwen2_moe"), 4);
  const auto reference = open_engine(container, {{"memory.experts", "100%"}});
  ASSERT_NE(reference, nullptr);
  const Bits expected = result_bits(run_job(*reference, job));
  const std::vector<SharedOut> all = shapes();
  for (int seed = 0; seed < seeds(); ++seed) {
    const auto number = static_cast<std::size_t>(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const char* const experts[] = {"min", "25%", "min", "100%"};
    const auto engine = open_shared(container, shared_out_yaml(all[number % all.size()]),
                                    {{"memory.experts", experts[number / all.size() % 4]},
                                     {"steps.in_flight", seed % 2 == 0 ? "1" : "2"},
                                     {"steps.max_rows", "24"},
                                     {"steps.wave_rows", "5"}});
    ASSERT_NE(engine, nullptr);
    StepScheduler scheduler(number);
    std::mt19937_64 random(number);
    JobRunOptions options{.stepped = &scheduler};
    const std::uint64_t blocked = seed % 3 == 0 ? 0 : random() % 50;
    if (blocked > 0) options.inject_blocking = [&random, blocked] { return random() % 100 < blocked; };
    const JobRun run = run_job(*engine, job, options);
    ASSERT_EQ(result_bits(run), expected);
    ASSERT_EQ(run.report.bytes_read, run.report.distinct_bytes);
  }
}

// fetch; the first one of a pipeline sleeps over its first message.
class SlowFetch final : public Stage {
 public:
  Status start(StageContext& context) override {
    sleepy_ = context.instance() == 0;
    return fetch_->start(context);
  }
  Wait on_message(Message& message, Emitter& out) override {
    if (std::exchange(sleepy_, false)) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return fetch_->on_message(message, out);
  }
  void end_of_input(Emitter& out) override { fetch_->end_of_input(out); }
  void stop() noexcept override { fetch_->stop(); }

 private:
  std::unique_ptr<Stage> fetch_ = create_fetch();
  bool sleepy_ = false;
};

// A fetch that is asked for nothing hears of every visit all the same, and nothing waits for its answer: its
// ring holds a few of these messages only. When it is slow, route waits for room: the ring neither overflows
// (which would fail the job) nor does anything hang.
TEST(SharedExperts, AFetchWithoutWorkMayBeSlow) {
  const Settings settings = {{"memory.experts", "min"}, {"steps.max_rows", "2"}, {"steps.wave_rows", "1"}};
  const auto reference = open_engine(demo_container(), settings);
  ASSERT_NE(reference, nullptr);
  Request request = generate_request({17, 1234}, 2);
  request.ignore_eos = true;
  ValueRecorder recorder;
  const Bits expected = result_bits(run_job(*reference, {request}, {.trace = &recorder}));
  // An expert that no row picks in any layer.
  std::uint32_t idle = 0;
  const auto picked = [&recorder](std::uint32_t expert) {
    return std::any_of(recorder.picks.begin(), recorder.picks.end(),
                       [expert](const auto& row) { return row.second.contains(expert); });
  };
  while (idle < 30 && picked(idle)) ++idle;
  ASSERT_FALSE(picked(idle)) << "take another prompt";
  const Registry builtin = builtin_registry();
  Registry registry;
  for (StageKind kind : builtin.kinds()) {
    if (kind.info->kind == "fetch") kind.create = [] { return std::unique_ptr<Stage>(new SlowFetch); };
    ASSERT_TRUE(registry.add(kind).is_ok());
  }
  EngineOptions options;
  options.registry = &registry;
  const std::string others =
      (idle > 0 ? "0-" + std::to_string(idle - 1) + "," : "") + std::to_string(idle + 1) + "-";
  const SharedOut shape{"idle", {{std::to_string(idle)}, {others}}, {{"all"}}, {{"all"}}};
  auto engine = Engine::open(demo_container(), pipeline_of(shared_out_yaml(shape), settings), options);
  ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
  const JobRun run = run_job(*engine.value(), {request});
  EXPECT_EQ(result_bits(run), expected);
  ASSERT_EQ(run.report.stages[6].name, "fetch0");
  EXPECT_EQ(run.report.stages[6].metric("demands_total"), 0U);
}

// A record that cannot be read fails the requests that need it, whichever fetch has it; the job goes on.
// One expert has a fetch, or a transfer, of its own, which gets its turn only when nobody else can run: what
// came back to it long ago must still be what it was.
TEST(SharedExperts, AStageWithOneExpertMaySleepForManyVisits) {
  const fs::path container = golden_container("mixtral", "config.json", "auto");
  for (const bool fetches : {true, false}) {
    SharedOut shape{"starved", {{"all"}}, {{"all"}}, {{"all"}}, false};
    (fetches ? shape.fetch : shape.transfer) = {{"0"}, {"1-"}};
    const std::string starved = fetches ? "fetch0" : "transfer0";
    const auto engine = open_shared(container, shared_out_yaml(shape),
                                    {{"memory.experts", "100%"},
                                     {"steps.max_rows", "24"},
                                     {"steps.wave_rows", "1"},
                                     {"steps.in_flight", "1"}});
    ASSERT_NE(engine, nullptr);
    for (const GoldenCase& one : golden_cases("mixtral")) {
      SCOPED_TRACE(starved);
      std::vector<std::int32_t> prompt = one.prompt;
      prompt.resize(std::min<std::size_t>(prompt.size(), 8));
      Request request = generate_request(prompt, 100);
      request.ignore_eos = true;
      StepScheduler scheduler(1);
      scheduler.run_first([&](std::string_view name) { return name != starved; });
      run_job(*engine, {request}, {.stepped = &scheduler});  // which fails the test when the job fails
    }
  }
}

TEST(SharedExperts, AFailedReadFailsTheRequestsThatNeedIt) {
  const auto container = golden_container("qwen2_moe", "config.json", "auto");
  const auto engine = open_shared(container, shared_out_yaml(shapes()[2]), {{"memory.experts", "min"}});
  ASSERT_NE(engine, nullptr);
  const std::uint32_t layer = engine->spec().next_moe_layer(0);
  for (const std::uint32_t expert : {2U, 3U}) {
    ValueRecorder recorder;
    const Request request = score_request(golden_prompts("qwen2_moe").at(0));
    run_job(*engine, {request}, {.trace = &recorder});
    bool needed = false;
    for (const auto& [place, picks] : recorder.picks)
      needed |= place.first == layer && picks.contains(expert);
    RepeatedSource source(request, 2);
    CollectingSink sink;
    Job job{.source = &source, .sink = &sink};
    job.read_faults = std::make_shared<FaultPlan>(
        std::vector<Fault>{{.kind = FaultKind::io_error,
                            .count = 1000,
                            .offset = engine->container().record(layer, expert).offset}});
    const auto report = engine->run(job);
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    ASSERT_EQ(sink.results.size(), 2U);
    for (const auto& [index, result] : sink.results) {
      EXPECT_EQ(!result.error.is_ok(), needed) << "expert " << expert;
      if (!needed) continue;
      EXPECT_NE(result.error.to_string().find("expert " + std::to_string(expert)), std::string::npos)
          << result.error.to_string();
    }
  }
}

TEST(SharedExperts, ExpertsOfTheModelThatNoStageHasAreRefused) {
  const auto container = golden_container("qwen2_moe", "config.json", "auto");
  const std::uint32_t experts = Container::open(container).value()->spec().num_experts;
  const std::string last = std::to_string(experts - 1);
  const std::string before = std::to_string(experts - 2);
  const auto status_of = [&](const SharedOut& shape) {
    return Engine::open(container, pipeline_of(shared_out_yaml(shape), {}), {}).status().to_string();
  };
  const std::string gap = status_of({"gap", {{"0-3"}, {"4-" + before}}, {{"all"}}, {{"all"}}});
  EXPECT_NE(gap.find("output route.demand leads to no stage for expert " + last + " of 0-" + last +
                     ": fetch0 has '0-3', fetch1 has '4-" + before + "'; expected each expert in one stage"),
            std::string::npos)
      << gap;
  const std::string idle =
      status_of({"idle", {{"all"}}, {{"all"}}, {{"0-" + last}, {std::to_string(experts) + "-"}}});
  EXPECT_NE(idle.find("stages.compute1.experts: '" + std::to_string(experts) + "-' has none of the " +
                      std::to_string(experts) + " experts of this model"),
            std::string::npos)
      << idle;
}

std::string config_text(const char* name) {
  std::ifstream file(root() / "configs" / name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

class SharedOutConfig : public ::testing::TestWithParam<const char*> {};

// The files as they are have no problems; with their stages anywhere, they run here and give the same bits.
TEST_P(SharedOutConfig, RunsAndGivesTheBitsOfTheBuiltInPipeline) {
  const PipelineSpec spec = pipeline_of(config_text(GetParam()), {});
  Settings settings = {{"memory.experts", "25%"}, {"steps.max_rows", "40"}, {"steps.wave_rows", "9"}};
  const auto reference = open_engine(demo_container(), settings);
  ASSERT_NE(reference, nullptr);
  for (const StageSpec& stage : spec.stages)
    settings.emplace_back("stages." + stage.name + ".numa_node", "auto");
  const auto engine = open_shared(demo_container(), config_text(GetParam()), settings);
  ASSERT_NE(engine, nullptr);
  const std::vector<Request> job = requests(demo_prompts(), 9);
  EXPECT_EQ(result_bits(run_job(*engine, job)), result_bits(run_job(*reference, job)));
  // Both fetches have half of the slots.
  ASSERT_EQ(engine->plan().slot_shares.size(), 2U);
  EXPECT_EQ(engine->plan().slot_shares[0].share.slots, engine->plan().slot_shares[1].share.slots);
}

INSTANTIATE_TEST_SUITE_P(Files, SharedOutConfig, ::testing::Values("two-drives.yaml", "numa.yaml"),
                         [](const auto& info) { return info.param[0] == 't' ? "two_drives" : "numa"; });

// What this machine lacks is refused by name; a machine with both nodes takes the file.
TEST(NumaConfig, NeedsTwoNodes) {
  const PipelineSpec spec = pipeline_of(config_text("numa.yaml"), {});
  Machine machine;
  machine.cpus = {0, 1, 2, 3};
  machine.nodes = {{.index = 0, .cpus = {0, 1}}, {.index = 1, .cpus = {2, 3}}};
  PipelineProblems problems;
  check_placement(spec, machine, problems);
  EXPECT_EQ(problems.to_status().to_string(), Status().to_string());
  machine.cpus = {0, 1};
  machine.nodes.pop_back();
  check_placement(spec, machine, problems);
  EXPECT_EQ(problems.lines.size(), 3U);
  for (const std::string& line : problems.lines)
    EXPECT_NE(line.find("node1.numa_node"), std::string::npos) << line;
}

}  // namespace
}  // namespace colibri::testing
