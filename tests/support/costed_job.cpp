#include "tests/support/costed_job.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "io/read/virtual_device.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "tests/support/watchdog.hpp"

namespace colibri::testing {
namespace {

using std::chrono::nanoseconds;

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
      std::uint32_t expert = message.first;
      for (std::uint32_t i = 0; i < message.count; ++i) {
        if (i > 0) expert = visit.next_done[expert];
        const std::uint32_t rows = visit.row_offsets[expert + 1] - visit.row_offsets[expert];
        clock().charge(kMicrosecondsAnExpert + kMicrosecondsAnExpertRow * rows);
      }
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

// Of the run; stages are made without arguments.
const Foresight*& known() {
  static const Foresight* one = nullptr;
  return one;
}

// Names what the visits of the next two layers will demand, as if it were certain.
class Seer final : public Stage {
 public:
  Status start(StageContext& context) override {
    spec_ = context.services().plan.spec;
    return {};
  }
  Wait on_message(Message& message, Emitter& out) override {
    HintBatch& batch = *message.hints();
    batch.target_count = 0;
    std::uint32_t layer = batch.layer, steps_ahead = 0;
    for (std::uint32_t distance = 0; distance < kSweepDepth; ++distance) {
      layer = spec_->next_moe_layer(layer + 1);
      if (layer == spec_->num_layers()) {
        layer = spec_->next_moe_layer(0);
        steps_ahead = 1;
      }
      const auto visit = foresight_.find({batch.step_serial + steps_ahead, layer});
      if (visit == foresight_.end()) break;
      HintTarget& target = batch.targets[batch.target_count++];
      target = {.layer = layer,
                .steps_ahead = steps_ahead,
                .experts = target.experts,
                .probabilities = target.probabilities};
      for (const std::uint32_t expert : visit->second) {
        target.probabilities[target.expert_count] = 1;
        target.experts[target.expert_count++] = expert;
      }
    }
    out.emit(0, {.type = MessageType::hint, .object = &batch});
    return Wait::none;
  }

 private:
  const Foresight& foresight_ = *known();
  const ModelSpec* spec_ = nullptr;
};

class WritesDown final : public TraceRecorder {
 public:
  explicit WritesDown(Foresight& foresight) : foresight_(foresight) {}
  bool wants_values() const override { return false; }
  bool wants_routing() const override { return true; }
  void values(std::string_view, std::uint32_t, const Sequence&, std::uint32_t,
              std::span<const float>) override {}
  void routing(std::uint64_t step, std::uint64_t, const Sequence&, std::uint32_t, std::uint32_t layer,
               std::span<const std::uint32_t> experts, std::span<const float>) override {
    foresight_[{step, layer}].insert(experts.begin(), experts.end());
  }

 private:
  Foresight& foresight_;
};

Registry costed_registry() {
  const Registry builtin = builtin_registry();
  Registry registry;
  for (StageKind kind : builtin.kinds()) {
    replace(kind);
    if (known() != nullptr && kind.info->kind == std::string_view("predict"))
      kind.create = [] { return std::unique_ptr<Stage>(new Seer); };
    EXPECT_TRUE(registry.add(kind).is_ok());
  }
  return registry;
}

}  // namespace

CostedRun run_costed(const std::filesystem::path& container,
                     std::vector<std::pair<std::string, std::string>> settings,
                     const std::vector<Request>& requests, double rate, std::uint32_t channels,
                     Foreseen foreseen, Foresight* foresight) {
  const Watchdog watchdog("a job in virtual time");
  known() = foreseen == Foreseen::used ? foresight : nullptr;
  const Registry registry = costed_registry();
  EngineOptions options;
  options.registry = &registry;
  settings.emplace_back("threads", "1");
  auto engine = Engine::open(container, pipeline_with(settings), options);
  EXPECT_TRUE(engine.is_ok()) << engine.status().to_string();
  CostedRun run{.rate = static_cast<std::uint64_t>(rate)};
  const auto device = std::make_shared<VirtualDevice>(std::vector<DeviceLaw>{
      {.bytes_per_second = run.rate, .latency = std::chrono::microseconds(80), .channels = channels}});
  StepScheduler scheduler(1, [&] { return device->advance(); });
  // What takes next to nothing has a thread of its own in a real run, or is done between two tiles.
  scheduler.run_first([](std::string_view stage) {
    return stage == "fetch" || stage == "transfer" || stage == "predict" || stage == "admit" ||
           stage == "embed";
  });
  clock() = {device};
  JobRunOptions job{.stepped = &scheduler, .virtual_device = device};
  std::optional<WritesDown> trace;
  if (foreseen == Foreseen::written_down) job.trace = &trace.emplace(*foresight);
  run.job = run_job(**engine, requests, job);
  run.wall = device->now();
  run.compute = clock().computed;
  EXPECT_EQ(run.job.report.bytes_read, run.job.report.distinct_bytes);
  return run;
}

double balanced_rate(const std::filesystem::path& container,
                     std::vector<std::pair<std::string, std::string>> settings,
                     const std::vector<Request>& requests, std::uint32_t channels) {
  settings.emplace_back("stages.predict.method", "none");
  const CostedRun fast = run_costed(container, std::move(settings), requests, 1e12, channels);
  return static_cast<double>(fast.bytes()) / fast.compute_seconds();
}

}  // namespace colibri::testing
