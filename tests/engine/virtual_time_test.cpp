// Jobs on a virtual clock: how long the reads of a job take is exact, whatever the machine does.
#include <gtest/gtest.h>

#include "io/read/virtual_device.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/small_job.hpp"
#include "tests/support/watchdog.hpp"

namespace colibri::testing {
namespace {

constexpr const char* kModel = "qwen2_moe";
constexpr DeviceLaw kByteANanosecond{.bytes_per_second = 1'000'000'000};

struct VirtualRun {
  JobRun job;
  std::chrono::nanoseconds wall{0};  // of the virtual clock
  VirtualDevice::Usage drive;
  std::chrono::nanoseconds computed{0};
};

class VirtualTime : public ::testing::Test {
 protected:
  // tile_cost: what each tile of compute takes, on the one thread that there is.
  VirtualRun run(const std::vector<std::pair<std::string, std::string>>& settings, std::uint64_t seed,
                 const DeviceLaw& law = kByteANanosecond, std::chrono::nanoseconds tile_cost = {}) {
    const Watchdog watchdog("seed " + std::to_string(seed));
    const auto engine = open_engine(golden_container(kModel, "config.json", "auto"), settings);
    const auto device = std::make_shared<VirtualDevice>(std::vector<DeviceLaw>{law});
    StepScheduler scheduler(seed, [&] { return device->advance(); });
    VirtualRun result;
    scheduler.before_tile([&](std::string_view stage) {
      if (stage != "compute") return;
      device->pass(tile_cost);
      result.computed += tile_cost;
    });
    result.job =
        run_job(*engine, small_requests(kModel, 5), {.stepped = &scheduler, .virtual_device = device});
    result.wall = device->now();
    result.drive = device->usage(0);
    EXPECT_EQ(result.drive.bytes, result.job.report.bytes_read);
    return result;
  }
};

TEST_F(VirtualTime, AJobThatOnlyReadsTakesTheTimeOfItsBytes) {
  const auto reference = open_engine(golden_container(kModel, "config.json", "auto"), {});
  const auto expected = result_bits(run_job(*reference, small_requests(kModel, 5)));
  for (const char* experts : {"min", "25%", "50%"}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const VirtualRun one = run({{"memory.experts", experts}, {"stages.predict.method", "none"}}, seed);
      EXPECT_EQ(result_bits(one.job), expected);
      EXPECT_GT(one.job.report.bytes_read, 0U);
      EXPECT_EQ(static_cast<std::uint64_t>(one.wall.count()), one.job.report.bytes_read) << experts;
      EXPECT_EQ(one.drive.busy, one.wall);
    }
  }
}

TEST_F(VirtualTime, TheSameSeedTakesTheSameTime) {
  const std::vector<std::pair<std::string, std::string>> settings = {{"memory.experts", "50%"}};
  const DeviceLaw law{
      .bytes_per_second = 700'000'000, .latency = std::chrono::microseconds(80), .channels = 4};
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const VirtualRun first = run(settings, seed, law, std::chrono::microseconds(3));
    const VirtualRun second = run(settings, seed, law, std::chrono::microseconds(3));
    EXPECT_EQ(first.wall, second.wall) << seed;
    EXPECT_EQ(first.job.report.bytes_read, second.job.report.bytes_read) << seed;
    EXPECT_EQ(first.job.report.wasted_hint_bytes, second.job.report.wasted_hint_bytes) << seed;
  }
}

TEST_F(VirtualTime, ReadsGoOnWhileExpertsAreComputed) {
  const VirtualRun one = run({{"memory.experts", "25%"}, {"stages.predict.method", "none"}}, 1,
                             kByteANanosecond, std::chrono::microseconds(20));
  EXPECT_GT(one.computed.count(), 0);
  EXPECT_GE(one.wall, std::max(one.computed, one.drive.busy));
  EXPECT_LT(one.wall, one.computed + one.drive.busy);
}

TEST_F(VirtualTime, ABandwidthLimitCountsForTheWholeJob) {
  const VirtualRun one = run({{"memory.experts", "min"},
                              {"stages.predict.method", "none"},
                              {"stages.fetch.bandwidth_limit", "100000000"}},
                             1);
  EXPECT_EQ(static_cast<std::uint64_t>(one.wall.count()), 10 * one.job.report.bytes_read);
}

TEST_F(VirtualTime, SomebodyMustMoveTheClock) {
  const auto engine = open_engine(golden_container(kModel, "config.json", "auto"), {});
  Job job;
  job.virtual_device = std::make_shared<VirtualDevice>(std::vector<DeviceLaw>{kByteANanosecond});
  const auto report = engine->run(job);
  ASSERT_FALSE(report.is_ok());
  EXPECT_NE(report.status().message().find("nobody moves the clock"), std::string::npos);
}

}  // namespace
}  // namespace colibri::testing
