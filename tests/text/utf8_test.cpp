// UTF-8 against the definition: every scalar value encodes and decodes, every sequence of
// up to four bytes is valid exactly if it is the encoding of a scalar value.
#include "io/text/utf8.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace colibri {
namespace {

bool is_scalar(char32_t value) { return value < 0x110000 && (value < 0xD800 || value > 0xDFFF); }

TEST(Utf8, EveryScalarValueRoundTrips) {
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (!is_scalar(value)) continue;
    std::string text = "x";
    append_code_point(text, value);
    text += "y";
    ASSERT_FALSE(first_invalid_utf8(text)) << std::hex << static_cast<std::uint32_t>(value);
    const CodePoint decoded = code_point_at(text, 1);
    ASSERT_TRUE(decoded.value == value);
    ASSERT_EQ(decoded.length, text.size() - 2);
    ASSERT_TRUE(code_point_before(text, text.size() - 1).value == value);
    // Every proper prefix waits for the rest; the whole does not.
    for (std::size_t length = 1; length <= decoded.length; ++length) {
      const std::string prefix = text.substr(0, 1 + length);
      ASSERT_EQ(incomplete_tail_length(prefix), length < decoded.length ? length : 0)
          << std::hex << static_cast<std::uint32_t>(value);
    }
  }
}

// The set of all encodings decides; three bytes cover every rule but the range of F0 and F4.
TEST(Utf8, AcceptsExactlyTheEncodings) {
  std::set<std::string> encodings;
  for (char32_t value = 0x80; value < 0x10000; ++value) {
    if (!is_scalar(value)) continue;
    std::string text;
    append_code_point(text, value);
    encodings.insert(text);
  }
  for (unsigned first = 0x80; first < 0x100; ++first) {
    for (unsigned second = 0; second < 0x100; second += 1) {
      const std::string two = {static_cast<char>(first), static_cast<char>(second)};
      ASSERT_EQ(!first_invalid_utf8(two), encodings.contains(two)) << first << " " << second;
      for (const unsigned third : {0x00u, 0x7Fu, 0x80u, 0xA5u, 0xBFu, 0xC0u, 0xFFu}) {
        const std::string three = two + static_cast<char>(third);
        const bool valid = encodings.contains(three) || (encodings.contains(two) && third < 0x80);
        ASSERT_EQ(!first_invalid_utf8(three), valid) << first << " " << second << " " << third;
      }
    }
  }
  EXPECT_TRUE(first_invalid_utf8("\xF0\x8F\xBF\xBF"));   // overlong
  EXPECT_FALSE(first_invalid_utf8("\xF0\x90\x80\x80"));  // U+10000
  EXPECT_FALSE(first_invalid_utf8("\xF4\x8F\xBF\xBF"));  // U+10FFFF
  EXPECT_TRUE(first_invalid_utf8("\xF4\x90\x80\x80"));   // above the last
}

TEST(Utf8, NamesTheFirstBadByte) {
  EXPECT_EQ(first_invalid_utf8("abc\xFFxyz"), 3u);
  EXPECT_EQ(first_invalid_utf8("\xC3\xA9\xC3"), 2u);
  EXPECT_EQ(first_invalid_utf8("\xED\xA0\x80"), 0u);  // a surrogate
  EXPECT_FALSE(first_invalid_utf8(std::string_view("a\0b", 3)));
  EXPECT_FALSE(first_invalid_utf8(""));
}

// The examples of "U+FFFD Substitution of Maximal Subparts", Unicode standard 15.0, tables 3-8 to 3-11.
TEST(Utf8, ReplacesMaximalBrokenParts) {
  const std::string bad = "\xEF\xBF\xBD";
  const auto lossy = [](std::string_view bytes) {
    std::string text;
    append_utf8_lossy(text, bytes);
    return text;
  };
  const auto times = [&](int count, const std::string& tail) {
    std::string text;
    for (int i = 0; i < count; ++i) text += bad;
    return text + tail;
  };
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), times(8, "A"));
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), times(8, "A"));
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), times(5, std::string("A").append(times(2, "B"))));
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), times(4, "A"));
  EXPECT_EQ(lossy("ok \xF0\x9F\x98"), "ok " + bad);
}

TEST(Utf8, TailOfBrokenTextDoesNotWait) {
  EXPECT_EQ(incomplete_tail_length("\x80\x80"), 0u);
  EXPECT_EQ(incomplete_tail_length("a\xE0\x80"), 0u);  // E0 80 can never become a character
  EXPECT_EQ(incomplete_tail_length("a\xE0\xA0"), 2u);
  EXPECT_EQ(incomplete_tail_length("\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_tail_length("\xF5"), 0u);
  EXPECT_EQ(incomplete_tail_length(""), 0u);
}

}  // namespace
}  // namespace colibri
