// Where threads and memory of a running pipeline really are, as the kernel says; and that answers do not
// depend on it.
#include <gtest/gtest.h>
#include <numaif.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/engine/pipeline.hpp"
#include "stages/dense_weights.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/number_source.hpp"
#include "tests/support/refuse_system_call.hpp"
#include "tests/support/thread_list.hpp"
#include "topology/machine.hpp"
#include "topology/thread_affinity.hpp"

namespace colibri::testing {
namespace {

using Numbers = std::vector<std::uint32_t>;

// The mask of the calling thread, by the C library rather than by what is tested.
Numbers kernel_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  Numbers cpus;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// What threads of each stage saw of themselves, by the stage's name.
struct Sightings {
  std::mutex mutex;
  std::map<std::string, std::set<Numbers>> cpus, cpus_at_start;
  std::map<std::string, std::set<pid_t>> threads;
  void see(const std::string& stage) {
    const Numbers mine = kernel_cpus();
    const std::lock_guard lock(mutex);
    cpus[stage].insert(mine);
    threads[stage].insert(gettid());
  }
};
Sightings& sightings() {
  static Sightings all;
  return all;
}

constexpr PortInfo kIn[] = {{"in", MessageType::host, "numbers"}};
constexpr PortInfo kOut[] = {{"out", MessageType::host, "numbers"}};
constexpr StageInfo kProbeInfo = {.kind = "probe",
                                  .help = "looks where it is",
                                  .inputs = kIn,
                                  .outputs = kOut,
                                  .params = {},
                                  .metrics = {}};
constexpr StageInfo kEndInfo = {
    .kind = "end", .help = "looks where it is", .inputs = kIn, .outputs = {}, .params = {}, .metrics = {}};

class Probe final : public Stage {
 public:
  explicit Probe(bool forwards) : forwards_(forwards) {}
  Status start(StageContext& context) override {
    context_ = &context;
    const std::lock_guard lock(sightings().mutex);
    sightings().cpus_at_start[std::string(context.name())].insert(kernel_cpus());
    return {};
  }
  Wait on_message(Message& message, Emitter& out) override {
    const std::string name(context_->name());
    sightings().see(name);
    context_->parallel(16, [&](std::size_t) {
      sightings().see(name);
      // Long enough for other threads to come and help.
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
      while (std::chrono::steady_clock::now() < until) {
      }
    });
    if (forwards_) out.emit(0, message);
    return Wait::none;
  }

 private:
  bool forwards_;
  StageContext* context_ = nullptr;
};

// numbers -> first -> second -> third, placed as the test says; returns when it has run and is gone.
void run_probes(const PlacementPlan& plan, const PipelineSpec& spec, const Registry& registry) {
  ModelSpec model;
  model.num_experts = 1;
  Services services;
  services.plan.spec = &model;
  services.plan.max_rows = services.plan.wave_rows = 1;
  Pipeline::Options options;
  options.placement = &plan;
  const std::vector<std::uint64_t> no_memory(spec.stages.size());
  auto pipeline = Pipeline::build(spec, registry, services, no_memory, {}, options);
  ASSERT_TRUE(pipeline.is_ok()) << pipeline.status().to_string();
  ASSERT_TRUE(pipeline.value()->start().is_ok());
  pipeline.value()->wait();
  pipeline.value()->stop();
  EXPECT_TRUE(pipeline.value()->status().is_ok());
}

Registry probe_registry() {
  Registry registry;
  EXPECT_TRUE(registry.add(number_source_kind()).is_ok());
  EXPECT_TRUE(registry.add({&kProbeInfo, [] { return std::unique_ptr<Stage>(new Probe(true)); }}).is_ok());
  EXPECT_TRUE(registry.add({&kEndInfo, [] { return std::unique_ptr<Stage>(new Probe(false)); }}).is_ok());
  return registry;
}

PipelineSpec probe_pipeline(const Numbers& first, const Numbers& second) {
  PipelineSpec spec;
  spec.stages = {number_source("numbers", 300),
                 {.name = "first", .kind = "probe", .cpus = first},
                 {.name = "second", .kind = "probe", .cpus = second},
                 {.name = "third", .kind = "end"}};
  for (std::size_t i = 0; i + 1 < spec.stages.size(); ++i) {
    EdgeSpec edge;
    edge.from_stage = spec.stages[i].name;
    edge.from_port = "out";
    edge.to_stage = spec.stages[i + 1].name;
    edge.to_port = "in";
    spec.edges.push_back(edge);
  }
  return spec;
}

// Every thread of this process may run on all of these again; workers of oneTBB leave an arena when they have
// looked for work a while, hence the wait.
void expect_all_threads_back(const Numbers& cpus) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::string pinned;
  do {
    pinned.clear();
    for (const ThreadFacts& thread : threads_of_this_process()) {
      if (thread.cpus != cpus) pinned += thread.name + " on " + format_cpu_list(thread.cpus) + "; ";
    }
    if (pinned.empty()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::chrono::steady_clock::now() < limit);
  ADD_FAILURE() << "still pinned: " << pinned;
}

TEST(PlacedThreads, RunOnTheirCpusAloneAndGetTheirOldOnesBack) {
  const Numbers all = kernel_cpus();
  const Registry registry = probe_registry();
  const Numbers first = {all.front()}, second = {all.back()};
  const PipelineSpec spec = probe_pipeline(first, second);
  const PlacementPlan plan = place_pipeline(spec, registry.infos(), read_machine().value());
  for (int round = 0; round < 3; ++round) {
    Sightings& seen = sightings();
    seen.cpus.clear();
    seen.cpus_at_start.clear();
    run_probes(plan, spec, registry);
    EXPECT_EQ(seen.cpus["first"], std::set<Numbers>{first});
    EXPECT_EQ(seen.cpus["second"], std::set<Numbers>{second});
    EXPECT_EQ(seen.cpus["third"], std::set<Numbers>{all});
    // Also what start makes: threads inherit, memory is touched there first.
    EXPECT_EQ(seen.cpus_at_start["first"], std::set<Numbers>{first});
    EXPECT_EQ(seen.cpus_at_start["third"], std::set<Numbers>{all});
    EXPECT_EQ(kernel_cpus(), all);
    expect_all_threads_back(all);
  }
}

TEST(PlacedThreads, SeveralCpusHaveSeveralThreads) {
  const Numbers all = kernel_cpus();
  if (all.size() < 2) GTEST_SKIP() << "needs two CPUs";
  const Registry registry = probe_registry();
  const PipelineSpec spec = probe_pipeline({all[0], all[1]}, {});
  const PlacementPlan plan = place_pipeline(spec, registry.infos(), read_machine().value());
  ASSERT_EQ(plan.placements[1].threads, 2u);
  sightings().cpus.clear();
  sightings().threads.clear();
  run_probes(plan, spec, registry);
  EXPECT_EQ(sightings().cpus["first"], (std::set<Numbers>{{all[0], all[1]}}));
  EXPECT_LE(sightings().threads["first"].size(), 9u);
}

// A process that may use one CPU only: what is not named stays on it, what names another one is refused.
TEST(PlacedThreads, StayInsideTheAffinityOfTheProcess) {
  const Numbers all = kernel_cpus();
  if (all.size() < 2) GTEST_SKIP() << "needs two CPUs";
  std::thread([&] {
    const Numbers only = {all.back()};
    ASSERT_TRUE(pin_this_thread(only).is_ok());
    const Machine machine = read_machine().value();
    EXPECT_EQ(machine.cpus, only);
    EXPECT_EQ(machine.default_threads(), 1u);
    const auto engine =
        open_engine(golden_container("qwen2_moe", "config.json", "auto"), {{"memory.experts", "50%"}});
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(engine->worker_slots(), 1u);
    const auto refused =
        Engine::open(golden_container("qwen2_moe", "config.json", "auto"),
                     pipeline_with({{"stages.attend.cpus", std::to_string(all.front())}}), {});
    ASSERT_FALSE(refused.is_ok());
    EXPECT_NE(refused.status().message().find("may not be used on this machine"), std::string_view::npos);
  }).join();
}

// Where pages lie, and which threads read, seen from inside a job: the `write` stage of the test looks around
// before it stops.
struct Inside {
  std::map<std::string, std::pair<int, unsigned long>> policies;  // by region: mode, nodes
  std::map<std::string, std::set<int>> nodes;                     // of pages that were touched
  std::vector<ThreadFacts> threads;
};
Inside& inside() {
  static Inside one;
  return one;
}

void look_at(const std::string& region, const void* address, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(address) + page - 1) / page * page;
  int mode = -1;
  unsigned long mask[16] = {};
  if (get_mempolicy(&mode, mask, sizeof mask * 8, reinterpret_cast<void*>(first), MPOL_F_ADDR) == 0) {
    inside().policies[region] = {mode, mask[0]};
  }
  for (std::uintptr_t at = first; at + page <= reinterpret_cast<std::uintptr_t>(address) + bytes;
       at += page) {
    void* pages[] = {reinterpret_cast<void*>(at)};
    int node = -1;
    if (move_pages(0, 1, pages, nullptr, &node, 0) == 0 && node >= 0) inside().nodes[region].insert(node);
  }
}

class Spy final : public Stage {
 public:
  Status start(StageContext& context) override {
    services_ = &context.services();
    return written_->start(context);
  }
  Wait on_message(Message& message, Emitter& out) override { return written_->on_message(message, out); }
  Wait resume(Emitter& out) override { return written_->resume(out); }
  void end_of_input(Emitter& out) override {
    written_->end_of_input(out);
    const SlotRegion& slots = services_->slots;
    look_at("slots", slots.base, slots.stride * slots.slots);
    look_at("kv", services_->kv.base,
            services_->kv.block_stride * services_->kv.layers * services_->kv.pages);
    look_at("dense", services_->dense->final_norm, 1 << 16);
    look_at("steps", services_->steps[0].residual, 1 << 16);
    inside().threads = threads_of_this_process();
  }
  void stop() noexcept override { written_->stop(); }

 private:
  const Services* services_ = nullptr;
  const std::unique_ptr<Stage> written_ = builtin_registry().find("write")->create();
};

// The built-in kinds, with the spy as `write`.
Registry spy_registry() {
  const Registry builtin = builtin_registry();
  Registry registry;
  for (StageKind kind : builtin.kinds()) {
    if (kind.info->kind == "write") kind.create = [] { return std::unique_ptr<Stage>(new Spy); };
    EXPECT_TRUE(registry.add(kind).is_ok());
  }
  return registry;
}

using Settings = std::vector<std::pair<std::string, std::string>>;

std::vector<Request> requests() {
  std::vector<Request> all;
  for (const GoldenCase& one : golden_cases("qwen2_moe")) {
    all.push_back(generate_request(one.prompt, 12));
    all.back().ignore_eos = true;
    all.push_back(score_request(one.prompt));
  }
  return all;
}

// Tokens and the bits of log-probabilities.
std::vector<std::vector<std::uint32_t>> answers_with(const Settings& settings,
                                                     std::vector<std::string>* log = nullptr) {
  const Registry registry = spy_registry();
  EngineOptions options;
  options.registry = &registry;
  options.log = [log](std::string line) {
    if (log != nullptr) log->push_back(std::move(line));
  };
  inside() = {};
  auto engine =
      Engine::open(golden_container("qwen2_moe", "config.json", "auto"), pipeline_with(settings), options);
  EXPECT_TRUE(engine.is_ok()) << engine.status().to_string();
  std::vector<std::vector<std::uint32_t>> answers;
  if (!engine) return answers;
  for (const RequestResult& result : run_job(**engine, requests()).results) {
    answers.emplace_back(result.tokens.begin(), result.tokens.end());
    for (const float value : result.prompt_logprobs)
      answers.back().push_back(std::bit_cast<std::uint32_t>(value));
  }
  return answers;
}

TEST(PlacedMemory, LiesOnTheNodeThatIsNamed) {
  const Machine machine = read_machine().value();
  const auto node = std::find_if(machine.nodes.rbegin(), machine.nodes.rend(),
                                 [](const NumaNode& one) { return !one.cpus.empty(); });
  ASSERT_NE(node, machine.nodes.rend());
  const std::string index = std::to_string(node->index);
  Settings settings = {{"memory.experts", "50%"}};
  for (const StageSpec& stage : pipeline_with({}).stages)
    settings.emplace_back("stages." + stage.name + ".numa_node", index);
  std::vector<std::string> log;
  answers_with(settings, &log);
  for (const std::string& line : log) {
    if (line.find("memory could not be bound") != std::string::npos) GTEST_SKIP() << line;
  }
  for (const char* region : {"slots", "kv", "dense", "steps"}) {
    EXPECT_EQ(inside().policies[region], std::pair(int{MPOL_PREFERRED}, 1UL << node->index)) << region;
    EXPECT_EQ(inside().nodes[region], std::set<int>{static_cast<int>(node->index)}) << region;
  }
}

TEST(PlacedMemory, IsLeftAloneWhenNothingIsNamedOnOneNode) {
  if (read_machine()->nodes.size() > 1) GTEST_SKIP() << "this machine has several nodes";
  answers_with({{"memory.experts", "50%"}});
  if (inside().policies.empty()) GTEST_SKIP() << "the kernel does not tell policies";
  for (const char* region : {"slots", "kv", "dense", "steps"}) {
    EXPECT_EQ(inside().policies[region].first, MPOL_DEFAULT) << region;
  }
}

TEST(PlacedReads, StayWhereFetchIs) {
  const Numbers all = kernel_cpus();
  for (const char* backend : {"pread", "io_uring"}) {
    const Numbers only = {all.back()};
    answers_with({{"memory.experts", "25%"},
                  {"stages.fetch.backend", backend},
                  {"stages.fetch.cpus", format_cpu_list(only)}});
    std::size_t readers = 0;
    for (const ThreadFacts& thread : inside().threads) {
      if (!thread.name.starts_with("colibri-")) continue;
      ++readers;
      EXPECT_EQ(thread.cpus, only) << thread.name;
    }
    EXPECT_GT(readers, 0u) << backend;
    answers_with({{"memory.experts", "25%"},
                  {"stages.fetch.backend", backend},
                  {"stages.attend.cpus", format_cpu_list(only)}});
    for (const ThreadFacts& thread : inside().threads) {
      if (thread.name.starts_with("colibri-")) {
        EXPECT_EQ(thread.cpus, all) << thread.name;
      }
    }
  }
}

TEST(PlacedAnswers, AreEqualToTheBit) {
  const Numbers all = kernel_cpus();
  const std::string first = std::to_string(all.front()), last = std::to_string(all.back());
  const auto expected = answers_with({{"memory.experts", "50%"}});
  ASSERT_FALSE(expected.empty());
  for (const Settings& placed :
       {Settings{{"stages.attend.cpus", first}, {"stages.compute.cpus", last}},
        Settings{{"stages.attend.cpus", first},
                 {"stages.route.cpus", last},
                 {"stages.sample.cpus", last},
                 {"threads", "1"}},
        Settings{{"threads", "1"},
                 {"stages.route.cpus", format_cpu_list(all)},
                 {"stages.predict.workers", "1"},
                 {"stages.sample.cpus", format_cpu_list(all)}},
        Settings{
            {"stages.fetch.cpus", last}, {"stages.transfer.cpus", first}, {"stages.transfer.mode", "copy"}},
        Settings{{"virtual_placement", "true"},
                 {"stages.attend.numa_node", "0"},
                 {"stages.compute.numa_node", "1"}},
        Settings{{"virtual_placement", "true"},
                 {"stages.attend.cpus", "0-15"},
                 {"stages.compute.cpus", "16-31,96"}}}) {
    Settings settings = placed;
    settings.emplace_back("memory.experts", "50%");
    EXPECT_EQ(answers_with(settings), expected) << placed[0].first << " " << placed[0].second;
  }
}

TEST(PlacedAnswers, VirtualPlacementSaysSoInOneLine) {
  std::vector<std::string> log;
  answers_with({{"virtual_placement", "true"}, {"stages.attend.numa_node", "7"}}, &log);
  const auto lines = std::count_if(log.begin(), log.end(), [](const std::string& line) {
    return line.starts_with("virtual placement: ") && line.ends_with("memory is not bound");
  });
  EXPECT_EQ(lines, 1);
  for (const auto& [region, policy] : inside().policies) EXPECT_EQ(policy.first, MPOL_DEFAULT) << region;
  log.clear();
  answers_with({{"virtual_placement", "true"}}, &log);  // nothing to say: nothing is placed
  for (const std::string& line : log) EXPECT_EQ(line.find("virtual placement"), std::string::npos) << line;
}

TEST(PlacedMemory, ARefusedBindingIsOneWarning) {
  const Machine machine = read_machine().value();
  const std::string node = std::to_string(machine.nodes.front().index);
  const auto expected = answers_with({{"memory.experts", "50%"}});
  for (const int error : {EPERM, ENOSYS}) {
    std::thread([&] {
      if (!refuse_system_call(SYS_mbind, error)) GTEST_SKIP() << "no seccomp filter can be set here";
      std::vector<std::string> log;
      const auto answers = answers_with(
          {{"memory.experts", "50%"}, {"stages.attend.numa_node", node}, {"stages.fetch.numa_node", node}},
          &log);
      EXPECT_EQ(answers, expected);
      EXPECT_EQ(std::count_if(log.begin(), log.end(),
                              [](const std::string& line) {
                                return line.find("memory could not be bound") != std::string::npos;
                              }),
                1);
    }).join();
  }
}

}  // namespace
}  // namespace colibri::testing
