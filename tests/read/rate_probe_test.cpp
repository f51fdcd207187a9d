// Measured rates: what is counted was read from the drive, by the kernel's own account; refusals.
#include "io/read/rate_probe.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/read/read_fixture.hpp"

namespace colibri {
namespace {

using testing::PatternFile;

// Bytes that this process had its drives read (proc_pid_io(5)).
std::uint64_t bytes_from_drives() {
  std::ifstream file("/proc/self/io");
  std::uint64_t value = 0;
  for (std::string name; file >> name >> value;) {
    if (name == "read_bytes:") return value;
  }
  return 0;
}

class RateProbeTest : public ::testing::TestWithParam<ReadKind> {
 protected:
  void SetUp() override {
    COLIBRI_SKIP_WITHOUT(GetParam());
    probe_.files = {file_.path()};
    probe_.kind = GetParam();
    probe_.duration = std::chrono::milliseconds(100);
    probe_.read_bytes = 256 << 10;
    probe_.depth = 4;
  }
  std::string error() {
    const auto rate = measure_read_rate(probe_);
    return rate ? "" : rate.status().to_string();
  }

  const PatternFile file_{4 << 20};
  RateProbe probe_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, RateProbeTest, ::testing::Values(ReadKind::io_uring, ReadKind::pread),
                         [](const auto& info) { return testing::kind_name(info.param); });

TEST_P(RateProbeTest, CountsWhatWasRead) {
  const std::uint64_t before = bytes_from_drives();
  const auto rate = measure_read_rate(probe_);
  ASSERT_TRUE(rate) << rate.status().to_string();
  EXPECT_GT(rate->reads, 0U);
  EXPECT_GT(rate->bytes_per_second, 0);
  EXPECT_NE(rate->description.find("4 lanes"), std::string::npos) << rate->description;
  if (rate->description.find("O_DIRECT") == std::string::npos) GTEST_SKIP() << "no O_DIRECT here";
  EXPECT_GE(bytes_from_drives() - before, rate->reads * probe_.read_bytes);
}

TEST_P(RateProbeTest, SeveralFilesAreReadAlike) {
  const PatternFile other(2 << 20);
  probe_.files.push_back(other.path());
  EXPECT_EQ(error(), "");
}

TEST_P(RateProbeTest, StopsWhenAsked) {
  probe_.duration = std::chrono::hours(1);
  int asked = 0;
  probe_.cancelled = [&asked] { return ++asked > 1; };
  const auto rate = measure_read_rate(probe_);
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.status().code(), ErrorCode::cancelled);
}

TEST_P(RateProbeTest, RefusesWhatCannotBeMeasured) {
  probe_.read_bytes = 8 << 20;
  EXPECT_NE(error().find("smaller than a read"), std::string::npos) << error();
  probe_.read_bytes = 4097;
  EXPECT_NE(error().find("multiple of 4096"), std::string::npos) << error();
  probe_.read_bytes = 4096;
  probe_.depth = 0;
  EXPECT_NE(error().find("depth 0"), std::string::npos) << error();
  probe_.depth = 1;
  probe_.files.clear();
  EXPECT_NE(error(), "");
}

}  // namespace
}  // namespace colibri
