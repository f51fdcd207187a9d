// How well reads and arithmetic overlap, on a real drive that is held back to some speed.
//
//   overlap_bench MODEL [--benchmark_...]
//
// MODEL is a container, build/demo for example. A batch of 256 sequences runs with all experts in memory,
// which says what arithmetic takes; then with half of them, on drives that would need from ten times as long
// as the arithmetic to a tenth of it. `of_limit` is wall / max(reading, arithmetic), 1.0 for perfect overlap;
// a virtual clock has it exact in tests/engine/overlap_time_test.cpp, this has what real threads and a real
// drive add.
#include <benchmark/benchmark.h>
#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <colibri/engine.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/read/device_model.hpp"
#include "stages/list_source.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {
namespace {

constexpr std::uint32_t kSequences = 256;
constexpr std::uint32_t kPromptTokens = 8;
constexpr std::uint32_t kGenerated = 16;

class Discard final : public ResultSink {
 public:
  Status result(RequestResult&& result) override { return std::move(result.error); }
  Status flush() override { return {}; }
};

std::vector<Request> requests(const ModelSpec& spec) {
  std::vector<Request> made(kSequences);
  for (std::uint32_t i = 0; i < kSequences; ++i) {
    made[i].index = i;
    made[i].id = std::to_string(i);
    made[i].max_tokens = kGenerated;
    made[i].ignore_eos = true;
    for (std::uint32_t t = 0; t < kPromptTokens; ++t)
      made[i].tokens.push_back(static_cast<std::int32_t>((31 * i + 17 * t) % spec.vocab_size));
  }
  return made;
}

std::unique_ptr<Engine> open(const std::string& model, const std::string& experts) {
  const Origin origin{.kind = Origin::Kind::command_line, .file = "bench"};
  const std::vector<Override> settings = {{"memory.experts", experts, origin},
                                          {"steps.max_rows", std::to_string(kSequences), origin},
                                          {"steps.in_flight", "1", origin}};
  const Registry registry = builtin_registry();
  PipelineProblems problems;
  PipelineSpec spec =
      parse_pipeline(default_pipeline_yaml(), "batch.yaml", registry.infos(), settings, problems);
  check_pipeline(spec, registry.infos(), problems);
  auto engine = Engine::open(model, std::move(spec), {});
  if (!engine) {
    std::fprintf(stderr, "overlap_bench: %s\n", engine.status().to_string().c_str());
    return nullptr;
  }
  return std::move(engine).value();
}

// Seconds and bytes of one run; none when it failed, which was said.
std::unique_ptr<RunReport> run(Engine& engine, std::uint64_t bytes_per_second) {
  ListSource source(requests(engine.spec()));
  Discard sink;
  Job job{.source = &source, .sink = &sink};
  if (bytes_per_second > 0) {
    job.read_drives.push_back(std::make_shared<DeviceModel>(DeviceLaw{.bytes_per_second = bytes_per_second}));
  }
  auto report = engine.run(job);
  if (report) return std::make_unique<RunReport>(std::move(report).value());
  std::fprintf(stderr, "overlap_bench: %s\n", report.status().to_string().c_str());
  return nullptr;
}

// `balance`: bytes a second with which reading takes as long as arithmetic.
void overlap(benchmark::State& state, Engine& engine, double factor, double balance, double arithmetic) {
  for (auto _ : state) {
    const double rate = factor * balance;
    const std::unique_ptr<RunReport> report = run(engine, static_cast<std::uint64_t>(rate));
    if (report == nullptr) return state.SkipWithError("the job failed");
    const double reading = static_cast<double>(report->bytes_read) / rate;
    state.SetIterationTime(report->wall_seconds);
    state.counters["reading_s"] = reading;
    state.counters["arithmetic_s"] = arithmetic;
    state.counters["of_limit"] = report->wall_seconds / std::max(reading, arithmetic);
  }
}

int bench(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: overlap_bench MODEL [--benchmark_...]\n");
    return 2;
  }
  const std::unique_ptr<Engine> resident = open(argv[1], "100%");
  const std::unique_ptr<Engine> half = open(argv[1], "50%");
  if (resident == nullptr || half == nullptr) return 1;
  const oneapi::tbb::global_control threads(oneapi::tbb::global_control::max_allowed_parallelism,
                                            1 + resident->worker_slots());
  // The first run of each fills slots and caches.
  double arithmetic = 1e9;
  for (int i = 0; i < 4; ++i) {
    const std::unique_ptr<RunReport> report = run(*resident, 0);
    if (report == nullptr) return 1;
    arithmetic = std::min(arithmetic, report->wall_seconds);
  }
  const std::unique_ptr<RunReport> warm = run(*half, 0);
  if (warm == nullptr) return 1;
  const double balance = static_cast<double>(warm->bytes_read) / arithmetic;
  for (const double factor : {0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0}) {
    char name[64];
    std::snprintf(name, sizeof name, "half_resident/balance_x%.2f", factor);
    benchmark::RegisterBenchmark(
        name, [&, factor](benchmark::State& state) { overlap(state, *half, factor, balance, arithmetic); })
        ->UseManualTime()
        ->Iterations(1)
        ->Repetitions(3)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace colibri

int main(int argc, char** argv) { return colibri::bench(argc, argv); }
