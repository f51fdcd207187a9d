// A megabyte of text of the kinds that make a careless tokenizer quadratic: one giant word,
// endless white space, runs of combining marks, special tokens without end. Each takes well
// under a second; quadratic behaviour would take hours and run into the test's time limit.
// Also one tokenizer used by several threads at once.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "io/text/tokenizer.hpp"

namespace colibri {
namespace {

// Sanitizers make everything about thirty times slower; they look for other things.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kTextBytes = std::size_t{1} << 16;
#else
constexpr std::size_t kTextBytes = std::size_t{1} << 20;
#endif

std::shared_ptr<const Tokenizer> load(const char* name) {
  const auto path = std::filesystem::path(COLIBRI_TEST_DATA) / "golden/tokenizers" / name / "tokenizer.json";
  const auto tokenizer = Tokenizer::load(path);
  EXPECT_TRUE(tokenizer) << tokenizer.status().to_string();
  return *tokenizer;
}

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

class TokenizerScale : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerScale, AMegabyteComesBackUnchanged) {
  const auto tokenizer = load(GetParam());
  for (const char* unit : {"a", "the", "Lorem ipsum dolor sit amet, ", " ", "\n", " \n", "  x", "0123456789",
                           "!?", "'", "'s", "<", "漢字かな", "👩‍👩‍👧", "ß", "\t\r\n"}) {
    const std::string text = repeated(unit, kTextBytes);
    const auto ids = tokenizer->encode(text, false);
    ASSERT_TRUE(ids) << ids.status().to_string();
    EXPECT_EQ(tokenizer->decode(*ids, false) == text, true) << "unit '" << unit << "'";
  }
}

TEST_P(TokenizerScale, SpecialTokensWithoutEnd) {
  const auto tokenizer = load(GetParam());
  const std::string_view special =
      GetParam() == std::string("llama2_style") ? "</s>" : "<|im_end|><|eot_id|>";
  const auto once = tokenizer->encode(special, false);
  const auto many = tokenizer->encode(repeated(special, kTextBytes), false);
  ASSERT_TRUE(once && many);
  EXPECT_EQ(many->size() % once->size(), 0u);
  for (std::size_t i = 0; i < many->size(); ++i) ASSERT_EQ((*many)[i], (*once)[i % once->size()]);
}

// Marks of two classes in alternation: canonical order sorts all of one before the other.
TEST(TokenizerNormalization, LongRunsOfCombiningMarks) {
  const auto tokenizer = load("qwen_style");
  const std::string above = "\u0301";
  const std::string below = "\u0323";
  const std::size_t pairs = kTextBytes / 4;
  const auto ids = tokenizer->encode("x" + repeated(above + below, 4 * pairs), false);
  ASSERT_TRUE(ids) << ids.status().to_string();
  const std::string expected = "x" + repeated(below, 2 * pairs) + repeated(above, 2 * pairs);
  EXPECT_EQ(tokenizer->decode(*ids, false) == expected, true);
}

TEST_P(TokenizerScale, ThreadsShareOneTokenizer) {
  const auto tokenizer = load(GetParam());
  const std::string text = repeated("It's 12 o'clock,\n  don't  é漢 <s>! ", 20'000);
  const auto expected = tokenizer->encode(text, true);
  ASSERT_TRUE(expected);
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 0);
  for (int& result : equal) {
    threads.emplace_back([&] {
      const auto ids = tokenizer->encode(text, true);
      result =
          ids && *ids == *expected && tokenizer->decode(*ids, true) == tokenizer->decode(*expected, true);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 1));
}

INSTANTIATE_TEST_SUITE_P(Golden, TokenizerScale,
                         testing::Values("qwen_style", "llama3_style", "llama2_style"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace colibri
