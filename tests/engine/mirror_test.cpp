// A model with a copy on another drive: reads go to both, answers are the same to the bit, and what is
// damaged in one is read from the other.
#include <gtest/gtest.h>

#include <fstream>

#include "io/container/copy_container.hpp"
#include "io/read/virtual_device.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "tests/engine/job_source.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/small_job.hpp"

namespace colibri::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "qwen2_moe";
constexpr DeviceLaw kByteANanosecond{.bytes_per_second = 1'000'000'000};

class Mirror : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto copied = copy_container(model(), mirror_, {});
    ASSERT_TRUE(copied.is_ok()) << copied.status().to_string();
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(mirror_, ignored);
  }
  static fs::path model() { return golden_container(kModel, "config.json", "auto"); }
  static std::unique_ptr<Engine> engine(const std::string& mirrors) {
    return open_engine(
        model(),
        {{"memory.experts", "25%"}, {"stages.predict.method", "none"}, {"stages.fetch.mirrors", mirrors}});
  }
  static std::string start_error(const std::string& mirrors) {
    const auto opened = engine(mirrors);
    RepeatedSource source(small_requests(kModel, 1).front(), 1);
    CollectingSink sink;
    const auto report = opened->run({.source = &source, .sink = &sink});
    return report ? "" : report.status().to_string();
  }

  const fs::path mirror_ = fs::path(::testing::TempDir()) / ("colibri.mirror." + std::to_string(::getpid()));
};

TEST_F(Mirror, BothDrivesAreReadAndAnswersStayTheSame) {
  const auto single = run_job(*engine(""), small_requests(kModel, 5));
  const auto device =
      std::make_shared<VirtualDevice>(std::vector<DeviceLaw>{kByteANanosecond, kByteANanosecond});
  StepScheduler scheduler(1, [&] { return device->advance(); });
  const JobRun run =
      run_job(*engine(mirror_), small_requests(kModel, 5), {.stepped = &scheduler, .virtual_device = device});
  EXPECT_EQ(result_bits(run), result_bits(single));
  EXPECT_EQ(run.report.bytes_read, run.report.distinct_bytes);
  EXPECT_EQ(device->usage(0).bytes + device->usage(1).bytes, run.report.bytes_read);
  EXPECT_GT(device->usage(0).bytes, 0U);
  EXPECT_GT(device->usage(1).bytes, 0U);
  // One drive alone would take a nanosecond a byte, without a pause.
  EXPECT_LT(static_cast<std::uint64_t>(device->now().count()), run.report.bytes_read * 9 / 10);
}

TEST_F(Mirror, DamageInOneCopyCostsOnlyRetries) {
  const auto expected = result_bits(run_job(*engine(""), small_requests(kModel, 5)));
  const auto container = Container::open(mirror_);
  ASSERT_TRUE(container.is_ok());
  {
    std::fstream file(mirror_ / "experts.bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(kPageBytes));
    const std::string zeros((*container)->expert_bytes(), '\0');
    file.write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
  }
  const JobRun run = run_job(*engine(mirror_), small_requests(kModel, 5));
  EXPECT_EQ(result_bits(run), expected);
  EXPECT_EQ(run.report.bytes_read, run.report.distinct_bytes);
}

TEST_F(Mirror, MustHoldTheSameModel) {
  const std::string other = start_error(golden_container("qwen3_moe", "config.json", "auto"));
  EXPECT_NE(other.find("holds another model"), std::string::npos) << other;
  const std::string missing = start_error(mirror_.string() + ",/no/such/mirror");
  EXPECT_NE(missing.find("/no/such/mirror"), std::string::npos) << missing;
}

}  // namespace
}  // namespace colibri::testing
