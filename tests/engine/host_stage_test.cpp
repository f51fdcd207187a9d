// Pipelines of a host's own stages on real threads: one that throws in a tile of many, one that throws on a
// message while others run on another placement, and one that waits for a device of its own.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/engine/pipeline.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "tests/support/number_source.hpp"
#include "topology/machine.hpp"

namespace colibri::testing {
namespace {

constexpr PortInfo kIn[] = {{"in", MessageType::host, "numbers"}};
constexpr PortInfo kOut[] = {{"out", MessageType::host, "numbers"}};
constexpr StageInfo kWorkInfo = {.kind = "work", .help = "what a test says", .inputs = kIn, .outputs = kOut};
constexpr StageInfo kDeviceInfo = {
    .kind = "device", .help = "computes elsewhere", .inputs = kIn, .outputs = kOut};
constexpr StageInfo kIdleInfo = {
    .kind = "idle", .help = "passes on what comes", .inputs = kIn, .outputs = kOut};
constexpr StageInfo kCheckInfo = {.kind = "check", .help = "counts", .inputs = kIn};

// What the stages of a test do, and what they saw.
struct Script {
  std::function<void(StageContext&, std::uint32_t)> work;
  std::vector<std::uint32_t> passes = {0};  // what `idle` says of its inputs
  std::atomic<std::uint32_t> checked{0}, stopped{0}, out_of_order{0}, idle_messages{0};
};
Script*& script() {
  static Script* one = nullptr;
  return one;
}

class Counted : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    return {};
  }
  void stop() noexcept override { ++script()->stopped; }

 protected:
  StageContext* context_ = nullptr;
};

class Work final : public Counted {
 public:
  Wait on_message(Message& message, Emitter& out) override {
    if (script()->work) script()->work(*context_, message.first);
    out.emit(0, message);
    return Wait::none;
  }
};

class Idle final : public Counted {
 public:
  std::span<const std::uint32_t> passes_to(const StageContext&) const override { return script()->passes; }
  Wait on_message(Message& message, Emitter& out) override {
    ++script()->idle_messages;
    out.emit(0, message);
    return Wait::none;
  }
};

class Check final : public Counted {
 public:
  Wait on_message(Message& message, Emitter&) override {
    if (message.first != script()->checked++) ++script()->out_of_order;
    return Wait::none;
  }
};

// Hands each message to a thread of its own and waits for the answer, as a driver of a device would.
class Device final : public Counted {
 public:
  Status start(StageContext& context) override {
    thread_ = std::thread([this, &port = context.completion_port()] { serve(port); });
    return Counted::start(context);
  }
  Wait on_message(Message& message, Emitter& out) override {
    if (message.port == kCompletionPort) {
      out.emit(0, {.first = message.first});
      busy_ = false;
      return Wait::none;
    }
    busy_ = true;
    const std::lock_guard lock(mutex_);
    asked_.push_back(message.first);
    changed_.notify_one();
    return Wait::device;
  }
  Wait resume(Emitter&) override { return busy_ ? Wait::device : Wait::none; }
  void stop() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_one();
    }
    thread_.join();
    Counted::stop();
  }

 private:
  void serve(CompletionPort& port) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !asked_.empty(); });
      if (stopping_) return;
      port.post({.first = asked_.front()});
      asked_.pop_front();
    }
  }
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::uint32_t> asked_;
  bool stopping_ = false;
  bool busy_ = false;
};

template <class Made>
std::unique_ptr<Stage> make() {
  return std::make_unique<Made>();
}

// numbers -> the stages named -> check; in one placement, alternating between two, or stepped.
enum class Threads { one_placement, two_placements, stepped };

class HostStages : public ::testing::TestWithParam<Threads> {
 protected:
  void SetUp() override {
    script() = &script_;
    const auto machine = read_machine();
    ASSERT_TRUE(machine.is_ok());
    machine_ = machine.value();
    if (GetParam() == Threads::two_placements && machine_.cpus.size() < 2) GTEST_SKIP() << "needs two CPUs";
  }
  Status run(const std::vector<std::string>& middle) {
    Registry registry;
    for (const StageKind& kind :
         {number_source_kind(), StageKind{&kWorkInfo, make<Work>}, StageKind{&kDeviceInfo, make<Device>},
          StageKind{&kIdleInfo, make<Idle>}, StageKind{&kCheckInfo, make<Check>}}) {
      EXPECT_TRUE(registry.add(kind).is_ok());
    }
    std::vector<std::string> kinds = {"numbers"};
    kinds.insert(kinds.end(), middle.begin(), middle.end());
    kinds.emplace_back("check");
    PipelineSpec spec;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      StageSpec stage = number_source(kinds[i] + std::to_string(i), 1000);
      if (i > 0) stage = {.name = stage.name, .kind = kinds[i]};
      if (GetParam() == Threads::two_placements) stage.cpus = {machine_.cpus[i % 2]};
      spec.stages.push_back(stage);
      if (i == 0) continue;
      EdgeSpec edge;
      edge.from_stage = spec.stages[i - 1].name;
      edge.from_port = "out";
      edge.to_stage = stage.name;
      edge.to_port = "in";
      edge.capacity = 4;
      spec.edges.push_back(edge);
    }
    ModelSpec model;
    model.num_experts = 1;
    Services services;
    services.plan.spec = &model;
    services.plan.max_rows = services.plan.wave_rows = 1;
    spec.threads = 4;
    const PlacementPlan placement = place_pipeline(spec, registry.infos(), machine_);
    StepScheduler scheduler(1);
    Pipeline::Options options;
    options.placement = &placement;
    if (GetParam() == Threads::stepped) options.stepped = &scheduler;
    auto pipeline =
        Pipeline::build(spec, registry, services, std::vector<std::uint64_t>(kinds.size()), {}, options);
    if (!pipeline) return pipeline.status();
    COLIBRI_RETURN_IF_ERROR(pipeline.value()->start());
    pipeline.value()->wait();
    pipeline.value()->stop();
    EXPECT_EQ(script_.stopped, kinds.size() - 1);  // all but the source, which is not of this file
    return pipeline.value()->status();
  }
  Script script_;
  Machine machine_;
};

TEST_P(HostStages, AStageThatThrowsOnMessageNEndsThePipelineByName) {
  for (const std::uint32_t n : {0U, 1U, 17U, 999U}) {
    script_.checked = script_.stopped = script_.out_of_order = 0;
    script_.work = [n](StageContext&, std::uint32_t number) {
      if (number == n) throw std::runtime_error("number " + std::to_string(number));
    };
    const Status status = run({"work", "work"});
    EXPECT_EQ(status.to_string(), "stage work1: exception in on_message: number " + std::to_string(n));
    EXPECT_LE(script_.checked, n);
    EXPECT_EQ(script_.out_of_order, 0U);
  }
  script_.checked = script_.stopped = 0;
  script_.work = nullptr;
  EXPECT_TRUE(run({"work", "work"}).is_ok());
  EXPECT_EQ(script_.checked, 1000U);
}

TEST_P(HostStages, ATileThatThrowsEndsThePipelineAfterTheTilesThatRun) {
  std::atomic<int> running = 0;
  bool returned = false;
  script_.work = [&](StageContext& context, std::uint32_t number) {
    try {
      context.parallel(64, [&](std::size_t tile) {
        ++running;
        if (number == 5 && tile == 40) {
          --running;
          throw std::runtime_error("tile");
        }
        --running;
      });
    } catch (const std::runtime_error&) {
      EXPECT_EQ(running, 0);  // the tiles' data may go: none of them runs any more
      throw;
    }
    returned |= number == 5;
  };
  EXPECT_EQ(run({"work"}).to_string(), "stage work1: exception in on_message: tile");
  EXPECT_FALSE(returned);
  EXPECT_LE(script_.checked, 5U);
}

TEST_P(HostStages, AStageMayWaitForADeviceOfItsOwn) {
  const Status status = run({"device", "work", "device"});
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(script_.checked, 1000U);
  EXPECT_EQ(script_.out_of_order, 0U);
}

TEST_P(HostStages, AnAbortReachesAStageThatWaitsForADevice) {
  script_.work = [](StageContext&, std::uint32_t number) {
    if (number == 10) throw std::runtime_error("ten");
  };
  EXPECT_EQ(run({"device", "work", "device"}).to_string(), "stage work2: exception in on_message: ten");
}

TEST_P(HostStages, MessagesGoPastStagesThatWouldOnlyPassThemOn) {
  for (const std::vector<std::string>& middle : {std::vector<std::string>{"idle"},
                                                 {"idle", "idle", "work"},
                                                 {"work", "idle", "work", "idle", "idle"}}) {
    script_.checked = script_.stopped = 0;
    const Status status = run(middle);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(script_.checked, 1000U);
    EXPECT_EQ(script_.out_of_order, 0U);
    EXPECT_EQ(script_.idle_messages, 0U);
  }
  script_.stopped = 0;
  script_.passes = {};  // it wants to see them
  EXPECT_TRUE(run({"idle", "work"}).is_ok());
  EXPECT_EQ(script_.idle_messages, 1000U);
}

TEST_P(HostStages, AnAbortReachesStagesThatMessagesGoPast) {
  script_.work = [](StageContext&, std::uint32_t number) {
    if (number == 10) throw std::runtime_error("ten");
  };
  EXPECT_EQ(run({"idle", "work", "idle", "idle"}).to_string(), "stage work2: exception in on_message: ten");
}

TEST_P(HostStages, AStageThatPassesToNothingIsRefusedByName) {
  for (const std::vector<std::uint32_t>& wrong : {std::vector<std::uint32_t>{1}, {0, 0}}) {
    script_.passes = wrong;
    EXPECT_EQ(run({"work", "idle"}).to_string(),
              "stage idle2: passes_to must name an output of the same type for each input, or none at all");
  }
}

INSTANTIATE_TEST_SUITE_P(Executors, HostStages,
                         ::testing::Values(Threads::one_placement, Threads::two_placements, Threads::stepped),
                         [](const auto& info) {
                           return info.param == Threads::one_placement    ? "one_placement"
                                  : info.param == Threads::two_placements ? "two_placements"
                                                                          : "stepped";
                         });

}  // namespace
}  // namespace colibri::testing
