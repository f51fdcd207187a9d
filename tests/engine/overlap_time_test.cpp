// How well reads and arithmetic overlap, exactly: the demo on a drive in virtual time, its stages at fixed
// costs, for drives from ten times too slow to ten times faster than the arithmetic.
#include <gtest/gtest.h>

#include <random>

#include "io/read/virtual_device.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/watchdog.hpp"

namespace colibri::testing {
namespace {

using std::chrono::nanoseconds;
using Settings = std::vector<std::pair<std::string, std::string>>;

const std::filesystem::path kDemo = COLIBRI_TEST_DATA "/../configs/demo/checkpoint";

// The clock of the run, and what arithmetic has taken on it.
struct Clock {
  std::shared_ptr<VirtualDevice> device;
  nanoseconds computed{0};

  void charge(double microseconds) {
    const nanoseconds cost(static_cast<std::int64_t>(microseconds * 1000));
    device->pass(cost);
    computed += cost;
  }
};
Clock& clock() {
  static Clock one;
  return one;
}

// About what the demo's stages take on one core: a call, and each row of it.
constexpr double kMicrosecondsACall = 10;
constexpr double kMicrosecondsAnExpert = 5, kMicrosecondsAnExpertRow = 1;

// Results of an expert are handed out when its rows have taken their time.
class CostedEmitter final : public Emitter {
 public:
  explicit CostedEmitter(Emitter& out) : out_(out) {}
  void emit(std::uint32_t port, const Message& message) override {
    if (message.type == MessageType::expert_done) {
      const Visit& visit = *message.visit();
      const std::uint32_t rows = visit.row_offsets[message.first + 1] - visit.row_offsets[message.first];
      clock().charge(kMicrosecondsAnExpert + kMicrosecondsAnExpertRow * rows);
    }
    out_.emit(port, message);
  }
  std::uint32_t room(std::uint32_t port) const override { return out_.room(port); }
  std::uint32_t owners(std::uint32_t port) const override { return out_.owners(port); }
  std::uint32_t owner(std::uint32_t port, std::uint32_t expert) const override {
    return out_.owner(port, expert);
  }
  void emit_to(std::uint32_t port, std::uint32_t owner, const Message& message) override {
    out_.emit_to(port, owner, message);
  }
  void end() override { out_.end(); }

 private:
  Emitter& out_;
};

// A built-in stage whose work takes time of the virtual clock: so much a row of a wave.
template <std::size_t kKind>
class Costed final : public Stage {
 public:
  static constexpr const char* kNames[] = {"attend", "route", "compute", "combine", "sample"};
  static constexpr double kMicrosecondsPerRow[] = {4.0, 0.5, 0.0, 0.3, 8.0};

  Status start(StageContext& context) override { return stage_->start(context); }
  Wait on_message(Message& message, Emitter& out) override {
    if (message.type == MessageType::wave) {
      clock().charge(kMicrosecondsACall + kMicrosecondsPerRow[kKind] * message.wave()->rows());
    }
    CostedEmitter costed(out);
    return stage_->on_message(message, costed);
  }
  Wait resume(Emitter& out) override {
    CostedEmitter costed(out);
    return stage_->resume(costed);
  }
  void end_of_input(Emitter& out) override { stage_->end_of_input(out); }
  void stop() noexcept override { stage_->stop(); }

 private:
  const std::unique_ptr<Stage> stage_ = builtin_registry().find(kNames[kKind])->create();
};

template <std::size_t kKind = 0>
void replace(StageKind& kind) {
  if constexpr (kKind < std::size(Costed<0>::kNames)) {
    if (kind.info->kind == Costed<kKind>::kNames[kKind])
      kind.create = [] { return std::unique_ptr<Stage>(new Costed<kKind>); };
    replace<kKind + 1>(kind);
  }
}

Registry costed_registry() {
  const Registry builtin = builtin_registry();
  Registry registry;
  for (StageKind kind : builtin.kinds()) {
    replace(kind);
    EXPECT_TRUE(registry.add(kind).is_ok());
  }
  return registry;
}

struct Times {
  nanoseconds wall{0}, compute{0};
  std::uint64_t bytes = 0;
  std::uint64_t rate = 0;  // of the drive, bytes a second
  double disk_seconds() const { return static_cast<double>(bytes) / static_cast<double>(rate); }
  double compute_seconds() const { return static_cast<double>(compute.count()) * 1e-9; }
  double seconds() const { return static_cast<double>(wall.count()) * 1e-9; }
  double over_limit() const { return seconds() / std::max(disk_seconds(), compute_seconds()); }
};

class OverlapTime : public ::testing::Test {
 protected:
  Times run(const Settings& settings, const std::vector<Request>& requests, double rate) const {
    const Watchdog watchdog("overlap");
    const Registry registry = costed_registry();
    EngineOptions options;
    options.registry = &registry;
    Settings all = settings;
    all.emplace_back("threads", "1");
    auto engine = Engine::open(container_of(kDemo, "config.json", "auto"), pipeline_with(all), options);
    EXPECT_TRUE(engine.is_ok()) << engine.status().to_string();
    Times times{.rate = static_cast<std::uint64_t>(rate)};
    const auto device = std::make_shared<VirtualDevice>(std::vector<DeviceLaw>{
        {.bytes_per_second = times.rate, .latency = std::chrono::microseconds(80), .channels = 4}});
    StepScheduler scheduler(1, [&] { return device->advance(); });
    // What takes next to nothing has a thread of its own in a real run, or is done between two tiles.
    scheduler.run_first([](std::string_view stage) {
      return stage == "fetch" || stage == "transfer" || stage == "predict" || stage == "admit" ||
             stage == "embed";
    });
    clock() = {device};
    const JobRun job = run_job(**engine, requests, {.stepped = &scheduler, .virtual_device = device});
    times.wall = device->now();
    times.compute = clock().computed;
    times.bytes = job.report.bytes_read;
    EXPECT_EQ(job.report.bytes_read, job.report.distinct_bytes);
    return times;
  }
  Times run_without_hints(Settings settings, const std::vector<Request>& requests, double rate) const {
    settings.emplace_back("stages.predict.method", "none");
    return run(settings, requests, rate);
  }
  // The bandwidth with which reading takes as long as computing.
  double balance(const Settings& settings, const std::vector<Request>& requests) const {
    const Times fast = run_without_hints(settings, requests, 1e12);
    return static_cast<double>(fast.bytes) / fast.compute_seconds();
  }

  static std::vector<std::int32_t> tokens(std::size_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> all(count);
    for (std::int32_t& token : all) token = static_cast<std::int32_t>(random() % 1000);
    return all;
  }
  static std::vector<Request> prompts(std::uint32_t count) {
    std::vector<Request> all;
    for (std::uint32_t i = 0; i < count; ++i) all.push_back(score_request(tokens(64, i)));
    return all;
  }
};

// Half of the experts in memory, steps of 128 rows: the longer of both, and little more.
TEST_F(OverlapTime, ManyRowsTakeTheLongerOfReadingAndComputing) {
  const Settings settings = {{"memory.experts", "50%"}, {"steps.max_rows", "128"}, {"steps.wave_rows", "32"}};
  const std::vector<Request> requests = prompts(96);
  const double rate = balance(settings, requests);
  for (const double factor : {0.1, 0.4, 0.7, 0.85, 1.0, 1.2, 1.5, 3.0, 10.0}) {
    const Times times = run(settings, requests, rate * factor);
    EXPECT_LE(times.over_limit(), 1.08) << factor << " of balance: " << times.seconds() << " s, reads "
                                        << times.disk_seconds() << ", arithmetic " << times.compute_seconds();
  }
}

// A quarter of the experts is one layer and a half: the drive cannot read far ahead. Where reading and
// computing take equally long, neither hides all of the other then.
TEST_F(OverlapTime, FewSlotsCostMostAtTheBalance) {
  const Settings settings = {{"memory.experts", "25%"}, {"steps.max_rows", "128"}, {"steps.wave_rows", "32"}};
  const std::vector<Request> requests = prompts(48);
  const double rate = balance(settings, requests);
  for (const auto& [factor, most] :
       {std::pair{0.1, 1.03}, {0.5, 1.06}, {1.0, 1.25}, {2.0, 1.06}, {10.0, 1.03}}) {
    const Times times = run(settings, requests, rate * factor);
    EXPECT_LE(times.over_limit(), most) << factor << " of balance";
  }
}

TEST_F(OverlapTime, HintsNeverCostMoreThanTheyGain) {
  const std::vector<Request> many = prompts(24);
  Request one = generate_request(tokens(20, 7), 60);
  one.ignore_eos = true;
  for (const char* memory : {"25%", "50%"}) {
    for (const auto& requests : {many, std::vector<Request>{one}}) {
      const Settings settings = {
          {"memory.experts", memory}, {"steps.max_rows", "128"}, {"steps.wave_rows", "32"}};
      const double rate = balance(settings, requests);
      for (const double factor : {0.1, 0.5, 1.0, 2.0, 10.0}) {
        const double with = run(settings, requests, rate * factor).seconds();
        const double without = run_without_hints(settings, requests, rate * factor).seconds();
        EXPECT_LE(with, 1.02 * without) << memory << ", " << requests.size() << " requests, " << factor;
        // Near the balance a single stream gains: it alone waits for every read that nobody foresaw.
        if (requests.size() == 1 && factor == 1.0) {
          EXPECT_LE(1.15 * with, without) << memory;
        }
      }
    }
  }
}

}  // namespace
}  // namespace colibri::testing
