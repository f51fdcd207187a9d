// What a message costs between two actors: taken, handed to a stage that only sends it on, sent, and the next
// actor woken. Two stages pass one message to and fro (latency), or a window of messages (batches), with real
// actors, edges and placements.
//
// One operation is one hop; compare with 0.5 us in one placement and 5 us between two.
#include <benchmark/benchmark.h>
#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/pipeline.hpp"
#include "topology/machine.hpp"

namespace colibri {
namespace {

constexpr PortInfo kIn[] = {{"in", MessageType::host, "the ball", true, false, true}};
constexpr PortInfo kStart[] = {{"start", MessageType::host, "the first balls"}};
constexpr PortInfo kServed[] = {{"in", MessageType::host, "the ball", true, false, true},
                                {"start", MessageType::host, "the first balls"}};
constexpr PortInfo kOut[] = {{"out", MessageType::host, "the ball"}};
constexpr StageInfo kServeInfo = {
    .kind = "serve", .help = "sends the first balls", .outputs = kStart, .source = true};
constexpr StageInfo kPingInfo = {
    .kind = "ping", .help = "counts and returns", .inputs = kServed, .outputs = kOut};
constexpr StageInfo kPongInfo = {.kind = "pong", .help = "returns", .inputs = kIn, .outputs = kOut};

// One measured run; the stages of a kind are made without arguments.
struct Game {
  std::uint32_t balls = 1;        // in play at a time
  std::uint64_t round_trips = 0;  // before it ends
  std::chrono::steady_clock::time_point begin, end;
};
Game& game() {
  static Game one;
  return one;
}

class Serve final : public Stage {
 public:
  Status start(StageContext&) override { return {}; }
  Wait on_message(Message&, Emitter& out) override { return resume(out); }
  Wait resume(Emitter& out) override {
    if (sent_ == game().balls) return Wait::input;  // it does not end before the game does
    out.emit(0, {.first = sent_++});
    return Wait::none;
  }

 private:
  std::uint32_t sent_ = 0;
};

// Ends the game by aborting it: the balls in play go with it.
class Ping final : public Stage {
 public:
  Status start(StageContext& context) override {
    services_ = &context.services();
    return {};
  }
  Wait on_message(Message& message, Emitter& out) override {
    if (message.port == 1) {
      if (++served_ == game().balls) game().begin = std::chrono::steady_clock::now();
    } else if (++returned_ == game().round_trips) {
      game().end = std::chrono::steady_clock::now();
      services_->fail_job(Status(ErrorCode::cancelled, "the game is over"));
    }
    out.emit(0, {.first = message.first});
    return Wait::none;
  }

 private:
  const Services* services_ = nullptr;
  std::uint32_t served_ = 0;
  std::uint64_t returned_ = 0;
};

class Pong final : public Stage {
 public:
  Status start(StageContext&) override { return {}; }
  Wait on_message(Message& message, Emitter& out) override {
    out.emit(0, {.first = message.first});
    return Wait::none;
  }
};

template <class Made>
std::unique_ptr<Stage> make() {
  return std::make_unique<Made>();
}

// Seconds of one hop. cpus: of ping and of pong; the same set, maybe empty, puts them into one placement.
double seconds_per_hop(const Machine& machine, const std::vector<std::uint32_t>& ping_cpus,
                       const std::vector<std::uint32_t>& pong_cpus, std::uint32_t threads) {
  Registry registry;
  static_cast<void>(registry.add({&kServeInfo, make<Serve>}));
  static_cast<void>(registry.add({&kPingInfo, make<Ping>}));
  static_cast<void>(registry.add({&kPongInfo, make<Pong>}));
  PipelineSpec spec;
  auto add_stage = [&spec](const char* kind, const std::vector<std::uint32_t>& cpus) {
    StageSpec stage;
    stage.name = stage.kind = kind;
    stage.cpus = cpus;
    spec.stages.push_back(stage);
  };
  add_stage("serve", ping_cpus);
  add_stage("ping", ping_cpus);
  add_stage("pong", pong_cpus);
  auto add_edge = [&spec](const char* from, const char* from_port, const char* to, const char* to_port) {
    EdgeSpec edge;
    edge.from_stage = from;
    edge.from_port = from_port;
    edge.to_stage = to;
    edge.to_port = to_port;
    edge.capacity = game().balls + 1;
    spec.edges.push_back(edge);
  };
  add_edge("serve", "start", "ping", "start");
  add_edge("ping", "out", "pong", "in");
  add_edge("pong", "out", "ping", "in");
  ModelSpec model;
  model.num_experts = 1;
  Services services;
  services.plan.spec = &model;
  services.plan.max_rows = services.plan.wave_rows = 1;
  spec.threads = threads;
  const PlacementPlan placement = place_pipeline(spec, registry.infos(), machine);
  Pipeline* running = nullptr;
  services.fail_job = [&running](Status status) { running->abort(std::move(status)); };
  Pipeline::Options options;
  options.placement = &placement;
  auto pipeline = Pipeline::build(spec, registry, services, std::vector<std::uint64_t>(3), {}, options);
  if (!pipeline) return -1;
  running = pipeline.value().get();
  if (!running->start()) return -1;
  running->wait();
  const double seconds = std::chrono::duration<double>(game().end - game().begin).count();
  return seconds / (2.0 * static_cast<double>(game().round_trips));
}

void measure(benchmark::State& state, bool across, bool pinned, std::uint32_t threads,
             std::uint64_t round_trips) {
  const auto machine = read_machine();
  if (!machine || machine.value().cpus.size() < 2) return state.SkipWithError("needs two CPUs");
  const std::vector<std::uint32_t>& all = machine.value().cpus;
  const std::vector<std::uint32_t> none, first = {all[0]}, second = {all[1]}, both = {all[0], all[1]};
  game().balls = static_cast<std::uint32_t>(state.range(0));
  game().round_trips = round_trips;
  for (auto _ : state) {
    const double seconds =
        across ? seconds_per_hop(machine.value(), first, second, threads)
               : seconds_per_hop(machine.value(), pinned ? both : none, pinned ? both : none, threads);
    if (seconds < 0) return state.SkipWithError("the pipeline did not run");
    state.SetIterationTime(seconds);
  }
  state.SetLabel("one iteration is one hop, the mean of many");
}

void one_placement_one_thread(benchmark::State& state) { measure(state, false, false, 1, 100'000); }
void one_placement_two_threads(benchmark::State& state) { measure(state, false, false, 2, 50'000); }
void one_placement_pinned(benchmark::State& state) { measure(state, false, true, 2, 50'000); }
void two_placements(benchmark::State& state) { measure(state, true, true, 1, 10'000); }

// Medians over repetitions, each a pipeline of its own.
void settings(benchmark::internal::Benchmark* bench) {
  bench->ArgName("balls")
      ->Arg(1)
      ->Arg(4)
      ->Arg(16)
      ->Arg(64)
      ->UseManualTime()
      ->Iterations(1)
      ->Repetitions(9)
      ->ReportAggregatesOnly(true)
      ->Unit(benchmark::kMicrosecond);
}
BENCHMARK(one_placement_one_thread)->Apply(settings);
BENCHMARK(one_placement_two_threads)->Apply(settings);
BENCHMARK(one_placement_pinned)->Apply(settings);
BENCHMARK(two_placements)->Apply(settings);

}  // namespace
}  // namespace colibri

int main(int argc, char** argv) {
  const tbb::global_control threads(tbb::global_control::max_allowed_parallelism, 5);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
