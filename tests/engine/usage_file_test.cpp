// The file of used experts: what was written comes back, and nothing else is taken for it.
#include "runtime/memory/usage_file.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "io/container/checksum.hpp"
#include "tests/cli/cli_runner.hpp"

namespace colibri::testing {
namespace {

class UsageFiles : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kLayers = 2, kExperts = 3;

  const test::TemporaryFolder folder_;
  const UsageFile file_{folder_.path(), "abc", kLayers, kExperts};
  const UsageSnapshot snapshot_{.visits = {4, 256}, .uses = {0, 1, 4, 0.5F, 255.75F, 256}};

  // Puts in place the content of the file with these counts, whatever they are.
  std::string content_with(const UsageSnapshot& snapshot) const {
    EXPECT_TRUE(file_.write(snapshot).is_ok());
    return test::read_file(file_.path().string());
  }
  Status status_of(const std::string& content) const {
    test::write_file(file_.path().string(), content);
    return file_.read().status();
  }
};

TEST_F(UsageFiles, ComeBack) {
  EXPECT_EQ(file_.path().filename(), "usage-abc.bin");
  EXPECT_TRUE(file_.read().value().empty()) << "there is none";
  ASSERT_TRUE(file_.write(snapshot_).is_ok());
  EXPECT_EQ(file_.read()->visits, snapshot_.visits);
  EXPECT_EQ(file_.read()->uses, snapshot_.uses);
  // Of another shape it is of no use.
  EXPECT_EQ(UsageFile(folder_.path(), "abc", kLayers, kExperts + 1).read().status().code(),
            ErrorCode::corrupt);
  EXPECT_EQ(UsageFile(folder_.path(), "abc", kExperts, kLayers).read().status().code(), ErrorCode::corrupt);
}

TEST_F(UsageFiles, EveryDamageIsSeen) {
  const std::string good = content_with(snapshot_);
  EXPECT_TRUE(status_of(good).is_ok());
  for (std::size_t i = 0; i < good.size(); ++i) {
    EXPECT_EQ(status_of(good.substr(0, i)).code(), ErrorCode::corrupt) << i << " bytes";
    for (const int bit : {0, 3, 7}) {
      std::string flipped = good;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      EXPECT_EQ(status_of(flipped).code(), ErrorCode::corrupt) << "byte " << i;
    }
  }
  EXPECT_EQ(status_of(good + '\0').code(), ErrorCode::corrupt);
}

TEST_F(UsageFiles, CountsThatCannotBeAreRefused) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {-1.0F, 5.0F, nan, infinity}) {
    UsageSnapshot wrong = snapshot_;
    wrong.uses[1] = bad;  // of 4 visits
    EXPECT_EQ(status_of(content_with(wrong)).code(), ErrorCode::corrupt) << bad;
  }
  for (const float bad : {-1.0F, 3.0F, nan, infinity}) {
    UsageSnapshot wrong = snapshot_;
    wrong.visits[0] = bad;  // of which there were 4
    EXPECT_EQ(status_of(content_with(wrong)).code(), ErrorCode::corrupt) << bad;
  }
}

TEST_F(UsageFiles, AFolderInItsPlaceIsNoFile) {
  std::filesystem::create_directories(file_.path());
  EXPECT_EQ(file_.read().status().code(), ErrorCode::corrupt);
  EXPECT_FALSE(file_.write(snapshot_).is_ok());
}

}  // namespace
}  // namespace colibri::testing
