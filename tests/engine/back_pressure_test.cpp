// A sink that does not take results holds up everything before it: requests in the pipeline, and with them
// its memory, stay within the capacities of edges and waiting lines however long the job.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/golden_model.hpp"
#include "tests/support/watchdog.hpp"

namespace colibri::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kModel = "olmoe_f32";
constexpr std::uint64_t kWaiting = 8, kRows = 32;
// read -> admit holds 64, sample -> write and admit -> write 256 each; rows of a step bound what runs and
// what one step finishes; a few more are in the hands of stages.
constexpr std::uint64_t kBound = 64 + kWaiting + 2 * kRows + 2 * 256 + 8;

// Short requests, of which every third is refused by admit; as many as there are, at once.
class EagerSource final : public RequestSource {
 public:
  explicit EagerSource(std::uint64_t count) : count_(count) {}
  Pull pull(Request& request) override {
    const std::uint64_t index = pulled_.load();
    if (index == count_) return Pull::end;
    request = index % 3 == 2 ? score_request({-1}) : score_request({1, 2});
    request.index = index;
    pulled_.store(index + 1);
    return Pull::request;
  }
  bool finite() const override { return true; }
  void on_ready(std::function<void()>) override {}
  std::uint64_t pulled() const { return pulled_.load(); }

 private:
  const std::uint64_t count_;
  std::atomic<std::uint64_t> pulled_{0};
};

// Takes its time at times: until nothing more comes in, however long that is. Every call sees how much there
// is.
class StallingSink final : public ResultSink {
 public:
  StallingSink(const EagerSource& source, std::uint64_t period) : source_(source), period_(period) {}
  Status result(RequestResult&&) override {
    if (results % period_ == 0) stall();
    most_in_pipeline = std::max(most_in_pipeline, source_.pulled() - results);
    most_heap = std::max<std::uint64_t>(most_heap, mallinfo2().uordblks);
    ++results;
    return {};
  }
  Status flush() override { return {}; }

  std::uint64_t results = 0, most_in_pipeline = 0, most_heap = 0;

 private:
  void stall() const {
    std::uint64_t before = ~std::uint64_t{0};
    for (int quiet = 0; quiet < 20;) {
      const std::uint64_t now = source_.pulled();
      quiet = now == before ? quiet + 1 : 0;
      before = now;
      std::this_thread::sleep_for(5ms);
    }
  }
  const EagerSource& source_;
  const std::uint64_t period_;
};

StallingSink run(Engine& engine, std::uint64_t requests) {
  const Watchdog watchdog("a job with a slow sink");
  EagerSource source(requests);
  StallingSink sink(source, 1000);
  const auto report = engine.run({.source = &source, .sink = &sink});
  EXPECT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(sink.results, requests);
  if (!report) return sink;
  for (const StageReport& stage : report->stages) EXPECT_LE(stage.queue_high_water, kBound) << stage.name;
  return sink;
}

TEST(BackPressure, ASlowSinkKeepsRequestsAndMemoryBounded) {
  const auto engine = open_engine(golden_container(kModel, "config.json", "auto"),
                                  {{"memory.experts", "100%"},
                                   {"threads", "3"},
                                   {"steps.max_rows", std::to_string(kRows)},
                                   {"stages.admit.waiting", std::to_string(kWaiting)}});
  ASSERT_NE(engine, nullptr);
  const StallingSink few = run(*engine, 1'500);
  const StallingSink many = run(*engine, 12'000);
  for (const StallingSink* sink : {&few, &many}) {
    EXPECT_LE(sink->most_in_pipeline, kBound);
    EXPECT_GT(sink->most_in_pipeline, 256U);  // the edges did fill up
  }
  // Zero under sanitizers, whose allocators tell nothing of their use.
  std::printf("heap: %lu bytes with 1,500 requests, %lu with 12,000\n", few.most_heap, many.most_heap);
  EXPECT_LE(many.most_heap, few.most_heap + (256U << 10));
}

}  // namespace
}  // namespace colibri::testing
