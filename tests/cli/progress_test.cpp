// The words of a progress line, and signals as questions.
#include "runtime/cli/progress.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <future>

#include "runtime/cli/stop_signals.hpp"

namespace colibri::cli {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST(FormatProgress, SaysShareRateAndTimeLeft) {
  ProgressState state;
  state.done = 100 * kMiB;
  state.total = 400 * kMiB;
  state.elapsed_seconds = 2;
  EXPECT_EQ(format_progress("verify", ProgressUnit::bytes, state),
            "verify: 100.00 MiB of 400.00 MiB (25 %), 50.00 MiB/s, 6 s left");
}

TEST(FormatProgress, DoesNotCountEarlierWorkInTheRate) {
  ProgressState state;
  state.done = 90;
  state.done_at_start = 80;
  state.total = 100;
  state.elapsed_seconds = 5;
  state.extra = "hit rate 80 %";
  EXPECT_EQ(format_progress("batch", ProgressUnit::items, state),
            "batch: 90 of 100 (90 %), 2.0/s, 5 s left, hit rate 80 %");
}

TEST(FormatProgress, LeavesOutWhatIsNotKnown) {
  ProgressState state;
  EXPECT_EQ(format_progress("batch", ProgressUnit::items, state), "batch: 0");
  state.total = 10;
  EXPECT_EQ(format_progress("batch", ProgressUnit::items, state), "batch: 0 of 10 (0 %)");
  state.done = 10;
  state.elapsed_seconds = 10;
  EXPECT_EQ(format_progress("batch", ProgressUnit::items, state), "batch: 10 of 10 (100 %), 1.0/s");
}

TEST(FormatProgress, WritesLongTimesInLargerUnits) {
  ProgressState state;
  state.done = 1;
  state.total = 186;
  state.elapsed_seconds = 1;
  EXPECT_NE(format_progress("x", ProgressUnit::items, state).find("3 min 05 s left"), std::string::npos);
  state.total = 7801;
  EXPECT_NE(format_progress("x", ProgressUnit::items, state).find("2 h 10 min left"), std::string::npos);
}

TEST(StopSignals, RemembersTheFirstAndAnnouncesIt) {
  std::promise<int> announced;
  auto signals = StopSignals::start([&announced](int signal) { announced.set_value(signal); });
  ASSERT_TRUE(signals.is_ok()) << signals.status().to_string();
  EXPECT_EQ((*signals)->received(), 0);
  ::kill(::getpid(), SIGTERM);
  EXPECT_EQ(announced.get_future().get(), SIGTERM);
  EXPECT_EQ((*signals)->received(), SIGTERM);
}

TEST(StopSignals, EndsWithoutASignal) {
  for (int round = 0; round < 20; ++round) {
    const auto signals = StopSignals::start();
    ASSERT_TRUE(signals.is_ok());
    EXPECT_EQ((*signals)->received(), 0);
  }
}

void stop_twice() {
  std::promise<void> first;
  const auto signals = StopSignals::start([&first](int) { first.set_value(); });
  ::kill(::getpid(), SIGINT);
  first.get_future().wait();
  ::kill(::getpid(), SIGINT);
  for (;;) ::pause();
}

TEST(StopSignalsDeathTest, TheSecondSignalEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(stop_twice(), testing::ExitedWithCode(130), "");
}

}  // namespace
}  // namespace colibri::cli
