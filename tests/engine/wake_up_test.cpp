// No wake-up is lost between the threads of a placement and between placements: chains of relays over edges
// that are nearly always full or empty deliver every message, in order.
#include <gtest/gtest.h>

#include <set>

#include "runtime/engine/pipeline.hpp"
#include "tests/support/number_source.hpp"
#include "topology/machine.hpp"

namespace colibri::testing {
namespace {

constexpr PortInfo kOneOutput[] = {{"out", MessageType::host, "what comes out"}};
constexpr PortInfo kIn[] = {{"in", MessageType::host, "numbers", true, true}};
constexpr StageInfo kRelayInfo = {.kind = "relay",
                                  .help = "passes on",
                                  .inputs = kIn,
                                  .outputs = kOneOutput,
                                  .params = {},
                                  .metrics = {},
                                  .max_emits = 1};
constexpr StageInfo kCheckInfo = {.kind = "check",
                                  .help = "counts",
                                  .inputs = kIn,
                                  .outputs = {},
                                  .params = {},
                                  .metrics = {},
                                  .max_emits = 1};

// What arrived; looked at after the end.
struct Checked {
  std::uint64_t count = 0, sum = 0;
  bool in_order = true;
};
Checked& checked() {
  static Checked one;
  return one;
}

class Relay final : public Stage {
 public:
  Status start(StageContext&) override { return {}; }
  Wait on_message(Message& message, Emitter& out) override {
    out.emit(0, message);
    return Wait::none;
  }
};

class Check final : public Stage {
 public:
  Status start(StageContext&) override { return {}; }
  Wait on_message(Message& message, Emitter&) override {
    checked().in_order &= message.first >= last_;
    last_ = message.first;
    ++checked().count;
    checked().sum += message.first;
    return Wait::none;
  }

 private:
  std::uint32_t last_ = 0;
};

// chain: numbers -> relay -> ... -> check, over edges of `capacity`, stage i on CPU set i % sets.
class Threads : public ::testing::Test {
 protected:
  void run(std::uint32_t sources, std::uint32_t relays, std::uint32_t capacity, bool two_placements) {
    Registry registry;
    ASSERT_TRUE(registry.add(number_source_kind()).is_ok());
    ASSERT_TRUE(registry.add({&kRelayInfo, [] { return std::unique_ptr<Stage>(new Relay); }}).is_ok());
    ASSERT_TRUE(registry.add({&kCheckInfo, [] { return std::unique_ptr<Stage>(new Check); }}).is_ok());
    const std::uint32_t wanted = two_placements ? 3'000 : 30'000;  // a hop between placements takes longer
    PipelineSpec spec;
    auto stage = [&](StageSpec one) {
      if (two_placements) one.cpus = {static_cast<std::uint32_t>(spec.stages.size() % 2)};
      spec.stages.push_back(one);
    };
    auto edge = [&](const std::string& from, const std::string& to) {
      EdgeSpec one;
      one.from_stage = from;
      one.from_port = "out";
      one.to_stage = to;
      one.to_port = "in";
      one.capacity = capacity;
      spec.edges.push_back(one);
    };
    for (std::uint32_t i = 0; i < relays; ++i) stage({.name = "relay" + std::to_string(i), .kind = "relay"});
    stage({.name = "check", .kind = "check"});
    for (std::uint32_t i = 0; i < sources; ++i) stage(number_source("numbers" + std::to_string(i), wanted));
    for (std::uint32_t i = 0; i < sources; ++i)
      edge("numbers" + std::to_string(i), relays > 0 ? "relay0" : "check");
    for (std::uint32_t i = 0; i < relays; ++i) {
      edge("relay" + std::to_string(i), i + 1 < relays ? "relay" + std::to_string(i + 1) : "check");
    }
    ModelSpec model;
    model.num_experts = 1;
    Services services;
    services.plan.spec = &model;
    services.plan.max_rows = services.plan.wave_rows = 1;
    const auto machine = read_machine();
    ASSERT_TRUE(machine.is_ok());
    spec.threads = 2;
    const PlacementPlan placement = place_pipeline(spec, registry.infos(), machine.value());
    Pipeline::Options options;
    options.placement = &placement;
    const std::vector<std::uint64_t> no_memory(spec.stages.size());
    checked() = {};
    auto pipeline = Pipeline::build(spec, registry, services, no_memory, {}, options);
    ASSERT_TRUE(pipeline.is_ok()) << pipeline.status().to_string();
    ASSERT_TRUE(pipeline.value()->start().is_ok());
    ASSERT_TRUE(pipeline.value()->wait_for(std::chrono::minutes(2))) << pipeline.value()->describe();
    pipeline.value()->stop();
    EXPECT_TRUE(pipeline.value()->status().is_ok());
    EXPECT_EQ(checked().count, sources * wanted);
    EXPECT_EQ(checked().sum, std::uint64_t{sources} * wanted * (wanted - 1) / 2);
    EXPECT_TRUE(checked().in_order || sources > 1);
    for (const StageReport& report : pipeline.value()->report()) {
      // A source counts what it sends, the others what they take.
      EXPECT_EQ(report.items, (report.kind == "numbers" ? 1 : sources) * wanted) << report.name;
      EXPECT_LE(report.queue_high_water, capacity);
    }
  }
  static bool has_two_cpus() {
    const auto machine = read_machine();
    std::set<std::uint32_t> cpus;
    for (const NumaNode& node : machine.value().nodes) cpus.insert(node.cpus.begin(), node.cpus.end());
    return cpus.contains(0) && cpus.contains(1);
  }
};

TEST_F(Threads, NoWakeUpIsLostInOnePlacement) {
  for (const std::uint32_t capacity : {1U, 2U, 64U}) run(1, 3, capacity, false);
}

TEST_F(Threads, NoWakeUpIsLostBetweenPlacements) {
  if (!has_two_cpus()) GTEST_SKIP() << "needs CPUs 0 and 1";
  for (const std::uint32_t capacity : {1U, 2U, 64U}) run(1, 3, capacity, true);
}

TEST_F(Threads, SeveralEdgesIntoOnePort) {
  run(3, 1, 2, false);
  if (has_two_cpus()) run(3, 1, 2, true);
}

}  // namespace
}  // namespace colibri::testing
