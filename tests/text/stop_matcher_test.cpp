// The stop matcher against a search in the whole text, over random texts of few letters,
// random stop strings and random cuts, and by hand where the timing of output matters.
#include "io/text/stop_matcher.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace colibri {
namespace {

// The earliest start of any stop string.
std::size_t first_stop(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, text.find(stop));
  return first;
}

TEST(StopMatcher, EqualsASearchInTheWholeText) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t limit) { return random() % limit; };
  const auto random_text = [&](std::size_t length, std::size_t letters) {
    std::string text;
    while (text.size() < length) text += static_cast<char>('a' + below(letters));
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    const std::size_t letters = 1 + below(3);
    const std::string text = random_text(below(30), letters);
    std::vector<std::string> stops(below(4));
    std::size_t longest = 0;
    for (std::string& stop : stops) {
      stop = random_text(1 + below(5), letters);
      longest = std::max(longest, stop.size());
    }
    const std::size_t expected = first_stop(text, stops);

    StopMatcher matcher(stops);
    std::string emitted;
    bool stopped = false;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = below(5);
      const auto output = matcher.push(text.substr(at, length));
      at = std::min(at + length, text.size());
      ASSERT_FALSE(stopped && !output.emit_text.empty());
      ASSERT_FALSE(stopped && !output.stopped);
      emitted += output.emit_text;
      stopped = output.stopped;
      // Never behind by more than an unfinished stop string.
      if (!stopped) {
        ASSERT_LT(at - emitted.size(), std::max<std::size_t>(longest, 1));
      }
    }
    const auto last = matcher.flush();
    emitted += last.emit_text;
    ASSERT_EQ(last.stopped, expected != std::string::npos) << text;
    ASSERT_EQ(emitted, text.substr(0, expected)) << text;
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatCouldStop) {
  StopMatcher matcher({"</s>", "\n\n"});
  EXPECT_EQ(matcher.push("hi <").emit_text, "hi ");
  EXPECT_EQ(matcher.push("/").emit_text, "");
  EXPECT_EQ(matcher.push("b>\n").emit_text, "</b>");
  EXPECT_EQ(matcher.push("x").emit_text, "\nx");
  const auto stop = matcher.push("y\n\nz");
  EXPECT_EQ(stop.emit_text, "y");
  EXPECT_TRUE(stop.stopped);
  EXPECT_TRUE(matcher.push("more").stopped);
  EXPECT_EQ(matcher.flush().emit_text, "");
}

TEST(StopMatcher, TheEarlierStartWinsEvenIfItEndsLater) {
  StopMatcher undecided({"abcd", "bc"});
  EXPECT_FALSE(undecided.push("xabc").stopped);
  const auto longer = undecided.push("d");
  EXPECT_TRUE(longer.stopped);
  EXPECT_EQ(longer.emit_text, "");

  StopMatcher other({"abcd", "bc"});
  EXPECT_EQ(other.push("xabc").emit_text, "x");
  const auto shorter = other.push("e");
  EXPECT_TRUE(shorter.stopped);
  EXPECT_EQ(shorter.emit_text, "a");

  StopMatcher ended({"abcd", "bc"});
  EXPECT_EQ(ended.push("xabc").emit_text, "x");
  const auto at_end = ended.flush();
  EXPECT_TRUE(at_end.stopped);
  EXPECT_EQ(at_end.emit_text, "a");
}

TEST(StopMatcher, WithoutStopsEverythingFlows) {
  StopMatcher none({});
  EXPECT_EQ(none.push("abc").emit_text, "abc");
  EXPECT_FALSE(none.flush().stopped);
  StopMatcher empty({""});
  EXPECT_EQ(empty.push("abc").emit_text, "abc");
  EXPECT_FALSE(empty.flush().stopped);
}

}  // namespace
}  // namespace colibri
