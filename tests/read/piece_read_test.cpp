// The retry logic by itself, step by step: what is asked for after each result.
#include "io/read/piece_read.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/read/read_fixture.hpp"

namespace colibri {
namespace {

using testing::Buffer;
using testing::PatternFile;
using Step = PieceRead::Step;

constexpr std::uint64_t kPage = 4096;

class PieceReadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path paths[] = {file_.path()};
    auto files = ReadFiles::open(paths, DirectIo::off, nullptr, 0);
    ASSERT_TRUE(files) << files.status().to_string();
    files_ = std::move(files).value();
    request_ = testing::request_for(1, 2 * kPage, 8 * kPage, buffer_);
    piece_.assign(*files_, request_, 4 * kPage, 4 * kPage, 0, 1);
  }

  const PatternFile file_{10 * kPage};
  const Buffer buffer_{8 * kPage};
  std::unique_ptr<ReadFiles> files_;
  ReadRequest request_;
  PieceRead piece_;
};

TEST_F(PieceReadTest, AsksForItsPartOfTheRecord) {
  const RawRead read = piece_.next_read();
  EXPECT_EQ(read.offset, 6 * kPage);
  EXPECT_EQ(read.destination, buffer_.data() + 4 * kPage);
  EXPECT_EQ(read.length, 4 * kPage);
  EXPECT_EQ(read.delay.count(), 0);
  EXPECT_EQ(piece_.on_result({0, 4 * kPage}), Step::done);
}

TEST_F(PieceReadTest, GoesOnFromTheLastWholePage) {
  piece_.next_read();
  EXPECT_EQ(piece_.on_result({0, kPage + 1000}), Step::again);
  const RawRead read = piece_.next_read();
  EXPECT_EQ(read.offset, 7 * kPage);
  EXPECT_EQ(read.destination, buffer_.data() + 5 * kPage);
  EXPECT_EQ(read.length, 3 * kPage);
  EXPECT_EQ(piece_.on_result({0, 3 * kPage}), Step::done);
  EXPECT_EQ(piece_.retries(), 0u);
}

TEST_F(PieceReadTest, BackOffDoublesAndEnds) {
  piece_.next_read();
  std::int64_t previous = 0;
  std::int64_t total = 0;
  int tries = 0;
  Step step;
  while ((step = piece_.on_result({EAGAIN, 0})) == Step::again) {
    const std::int64_t delay = piece_.next_read().delay.count();
    EXPECT_TRUE(delay == 2 * previous || previous == 0 || delay == 64'000) << delay;
    EXPECT_GT(delay, 0);
    previous = delay;
    total += delay;
    ++tries;
  }
  EXPECT_EQ(step, Step::failed);
  EXPECT_EQ(tries, 12);
  EXPECT_LT(total, 1'000'000);
  EXPECT_EQ(piece_.failure().code(), ErrorCode::io);
}

TEST_F(PieceReadTest, ProgressForgivesEarlierBackOff) {
  piece_.next_read();
  for (int i = 0; i < 12; ++i) EXPECT_EQ(piece_.on_result({EAGAIN, 0}), Step::again);
  EXPECT_EQ(piece_.on_result({0, kPage}), Step::again);
  EXPECT_EQ(piece_.on_result({EAGAIN, 0}), Step::again);
  EXPECT_EQ(piece_.next_read().delay.count(), 500);
}

TEST_F(PieceReadTest, EndlessInterruptionsEnd) {
  int tries = 0;
  while (piece_.on_result({EINTR, 0}) == Step::again) ++tries;
  EXPECT_EQ(tries, 1000);
  EXPECT_EQ(piece_.failure().code(), ErrorCode::io);
}

TEST_F(PieceReadTest, NothingReadInsideTheFileIsNoProgressRatherThanTheEnd) {
  int tries = 0;
  while (piece_.on_result({0, 0}) == Step::again) ++tries;
  EXPECT_EQ(tries, 1000);
  EXPECT_EQ(piece_.failure().code(), ErrorCode::io);
}

TEST_F(PieceReadTest, OneErrorPerPieceIsForgiven) {
  EXPECT_EQ(piece_.on_result({EIO, 0}), Step::again);
  EXPECT_EQ(piece_.on_result({0, 2 * kPage}), Step::again);
  EXPECT_EQ(piece_.on_result({ENODEV, 0}), Step::failed);
  EXPECT_NE(piece_.failure().to_string().find("offset 32768,"), std::string::npos);
}

TEST_F(PieceReadTest, AnInvalidBufferedReadFailsAtOnce) {
  piece_.next_read();
  EXPECT_EQ(piece_.on_result({EINVAL, 0}), Step::failed);
  EXPECT_EQ(piece_.failure().code(), ErrorCode::io);
}

TEST_F(PieceReadTest, TheEndOfTheFileNamesBothLengths) {
  request_ = testing::request_for(1, 4 * kPage, 8 * kPage, buffer_);
  piece_.assign(*files_, request_, 4 * kPage, 4 * kPage, 0, 1);
  EXPECT_EQ(piece_.on_result({0, 2 * kPage}), Step::again);
  EXPECT_EQ(piece_.on_result({0, 0}), Step::failed);
  EXPECT_EQ(piece_.failure().code(), ErrorCode::corrupt);
  const std::string text = piece_.failure().to_string();
  EXPECT_NE(text.find("expected at least 49152 bytes, found 40960"), std::string::npos) << text;
}

}  // namespace
}  // namespace colibri
