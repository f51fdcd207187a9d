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

// What the demo's stages take on one core of a server (AVX-512 with VNNI, weights in int8): medians of the
// busy time in profiles of three jobs each, one worker thread, all experts in memory. A call with a wave, and
// each row of it: fitted to jobs that score in waves of 8, 32 and 128 rows, and to one that generates row by
// row; all but attend and sample in waves of 8 are within a tenth of it. sample's are rows with logits.
struct CallCost {
  const char* stage;
  double call_us, row_us;
};
constexpr CallCost kCallCosts[] = {{"embed", 0.5, 0.3},    {"attend", 2.8, 1.4}, {"route", 0.65, 0.35},
                                   {"combine", 0.2, 0.09}, {"sample", 8.0, 4.1}, {"compute", 0, 0}};
// An expert with so many rows, from steps of 1, 8, 32, 128 and 512 rows; between these, in proportion.
struct ExpertCost {
  double rows, us;
};
constexpr ExpertCost kExpertCosts[] = {{0, 0.9}, {1, 1.35}, {2.3, 1.85}, {6, 4.3}, {20, 10.5}, {73, 30}};

double expert_microseconds(double rows) {
  const ExpertCost* above = kExpertCosts + 1;
  while (above->rows < rows && above + 1 != std::end(kExpertCosts)) ++above;
  const ExpertCost& below = above[-1];
  return below.us + (rows - below.rows) * (above->us - below.us) / (above->rows - below.rows);
}

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
        clock().charge(expert_microseconds(rows));
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

// A built-in stage whose work takes time of the virtual clock: so much a call and a row.
template <std::size_t kKind>
class Costed final : public Stage {
 public:
  static constexpr CallCost kCost = kCallCosts[kKind];
  static constexpr bool kSamples = std::string_view(kCost.stage) == "sample";
  static constexpr bool kAttends = std::string_view(kCost.stage) == "attend";

  Status start(StageContext& context) override {
    if (kSamples) sampled_ = context.counter("logit_rows_total");
    layers_ = context.services().plan.spec->num_layers();
    return stage_->start(context);
  }
  Wait on_message(Message& message, Emitter& out) override {
    if (!kSamples && message.type == MessageType::wave && !is_finished(message))
      charge(message.wave()->rows());
    return call(out, [&](Emitter& costed) { return stage_->on_message(message, costed); });
  }
  Wait resume(Emitter& out) override {
    return call(out, [&](Emitter& costed) { return stage_->resume(costed); });
  }
  void end_of_input(Emitter& out) override { stage_->end_of_input(out); }
  void stop() noexcept override { stage_->stop(); }

 private:
  static void charge(std::uint64_t rows) {
    clock().charge(kCost.call_us + kCost.row_us * static_cast<double>(rows));
  }
  // A wave that has been through all layers is only passed on.
  bool is_finished(const Message& message) const {
    return kAttends && message.port == kLooping && message.wave()->layer + 1 == layers_;
  }
  // Which rows are sampled when, the stage says.
  template <class Call>
  Wait call(Emitter& out, Call&& call) {
    CostedEmitter costed(out);
    const std::uint64_t before = kSamples ? sampled_->get() : 0;
    const Wait wait = call(costed);
    if (kSamples && sampled_->get() != before) charge(sampled_->get() - before);
    return wait;
  }

  static constexpr std::uint8_t kLooping = 0;  // attend's input of waves that come back
  Counter* sampled_ = nullptr;
  std::uint32_t layers_ = 0;
  const std::unique_ptr<Stage> stage_ = builtin_registry().find(kCost.stage)->create();
};

template <std::size_t kKind = 0>
void replace(StageKind& kind) {
  if constexpr (kKind < std::size(kCallCosts)) {
    if (kind.info->kind == kCallCosts[kKind].stage)
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
  // What a second thread does beside in a real run: about a microsecond a wave, and a few a read.
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
                     const std::vector<std::pair<std::string, std::string>>& settings,
                     const std::vector<Request>& requests, std::uint32_t channels) {
  // How much is read ahead for nothing depends on the rate: a second run, at about the rate that is looked
  // for.
  double rate = 1e12;
  for (int i = 0; i < 2; ++i) {
    const CostedRun run = run_costed(container, settings, requests, rate, channels);
    rate = static_cast<double>(run.bytes()) / run.compute_seconds();
  }
  return rate;
}

}  // namespace colibri::testing
