// A wave is in `attend` while reads of another wave are in flight: shown by a read that is held until the
// attention of the other wave is done. A pipeline that waited for the read first would never get there.
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "io/read/fault_backend.hpp"
#include "stages/attend.hpp"
#include "tests/engine/job_source.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kModel = "qwen3_moe";
constexpr std::uint32_t kWaveRows = 1;  // so few that two waves pick different experts
enum Port : std::uint8_t { kLooping, kFresh };

// Which call of attend the read is held for, and how many such calls began and ended while it was in flight.
struct Gate {
  std::uint8_t port = kLooping;
  std::uint32_t wave = 0;
  std::atomic<int> overlapped{0};
};
Gate& gate() {
  static Gate one;
  return one;
}

// attend, which waits before the call in question until the read is in flight, and lets it go on after it.
class GatedAttend final : public Stage {
 public:
  Status start(StageContext& context) override {
    faults_ = context.services().read_faults;
    return attend_->start(context);
  }
  Wait on_message(Message& message, Emitter& out) override {
    const bool held = faults_ != nullptr && message.port == gate().port && message.wave()->index == gate().wave &&
                      gate().overlapped == 0;
    if (held && !faults_->wait_until_hanging(1, 20s)) return attend_->on_message(message, out);
    const Wait wait = attend_->on_message(message, out);
    if (held) {
      gate().overlapped += static_cast<int>(faults_->hanging());
      faults_->release();
    }
    return wait;
  }
  Wait resume(Emitter& out) override { return attend_->resume(out); }
  void end_of_input(Emitter& out) override { attend_->end_of_input(out); }
  void stop() noexcept override { attend_->stop(); }

 private:
  std::unique_ptr<Stage> attend_ = create_attend();
  std::shared_ptr<FaultPlan> faults_;
};

Registry gated_registry() {
  const Registry builtin = builtin_registry();
  Registry registry;
  for (StageKind kind : builtin.kinds()) {
    if (kind.info->kind == "attend") kind.create = [] { return std::unique_ptr<Stage>(new GatedAttend); };
    EXPECT_TRUE(registry.add(kind).is_ok());
  }
  return registry;
}

class Overlap : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.registry = &registry_;
    auto engine = Engine::open(golden_container(kModel, "config.json", "auto"),
                               pipeline_with({{"memory.experts", "100%"}, {"threads", "2"}, {"steps.max_rows", std::to_string(2 * kWaveRows)},
                                              {"steps.wave_rows", std::to_string(kWaveRows)}}),
                               options);
    ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
    engine_ = std::move(engine).value();
    prompt_ = golden_cases(kModel).at(3).prompt;
    ASSERT_GE(prompt_.size(), 2 * kWaveRows);
    prompt_.resize(2 * kWaveRows);
    run_job(*engine_, {score_request(prompt_)}, {.trace = &recorder_});
  }
  // An expert of the first MoE layer that only rows of `wave` pick.
  std::optional<std::uint32_t> expert_of_wave(std::uint32_t wave) const {
    std::set<std::uint32_t> picked[2];
    for (std::uint32_t row = 0; row < 2 * kWaveRows; ++row) {
      for (const auto& [expert, weight] : recorder_.picks.at({0, row})) picked[row / kWaveRows].insert(expert);
    }
    for (const std::uint32_t expert : picked[wave]) {
      if (!picked[1 - wave].contains(expert)) return expert;
    }
    return std::nullopt;
  }
  // Holds the read of that expert until attend has done its call for `attending` on `port`.
  void expect_overlap(std::uint32_t reading, std::uint32_t attending, std::uint8_t port) {
    gate().port = port;
    gate().wave = attending;
    gate().overlapped = 0;
    const std::optional<std::uint32_t> expert = expert_of_wave(reading);
    ASSERT_TRUE(expert) << "both waves pick the same experts: take another prompt";
    const std::uint64_t offset = engine_->container().record(0, *expert).offset;
    Job job;
    RepeatedSource source(score_request(prompt_), 1);
    CollectingSink sink;
    job.source = &source;
    job.sink = &sink;
    job.read_faults = std::make_shared<FaultPlan>(std::vector<Fault>{{.kind = FaultKind::hang, .offset = offset}});
    const auto report = engine_->run(job);
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    EXPECT_EQ(gate().overlapped, 1);
    ASSERT_EQ(sink.results.size(), 1U);
    EXPECT_TRUE(sink.results[0].error.is_ok()) << sink.results[0].error.to_string();
  }

  const Registry registry_ = gated_registry();
  std::unique_ptr<Engine> engine_;
  std::vector<std::int32_t> prompt_;
  ValueRecorder recorder_;
};

TEST_F(Overlap, TheSecondWaveAttendsWhileTheFirstOnesExpertsAreRead) { expect_overlap(0, 1, kFresh); }

TEST_F(Overlap, TheFirstWaveIsInTheNextLayerWhileTheSecondOnesExpertsAreRead) { expect_overlap(1, 0, kLooping); }

}  // namespace
}  // namespace colibri::testing
