// How many tokens a file has, from its first part.
#include "io/text/prompt_estimate.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/jobs/temporary_folder.hpp"

namespace colibri {
namespace {

std::string prompt(std::size_t tokens) {
  std::string line = R"({"tokens":[1)";
  for (std::size_t i = 1; i < tokens; ++i) line += ",1";
  return line + "]}\n";
}

struct Looked {
  InputScan scan;
  PromptEstimate estimate;
};

Looked look_at(const std::string& content, std::uint64_t sample_bytes) {
  TemporaryFolder folder;
  const std::string file = folder.write("in", content);
  const auto scan = scan_requests(file);
  EXPECT_TRUE(scan.is_ok()) << scan.status().to_string();
  if (!scan) return {};
  const auto found = estimate_prompts(file, *scan, Task::score, {.vocab_size = 10}, nullptr, sample_bytes);
  EXPECT_TRUE(found.is_ok()) << found.status().to_string();
  return {*scan, found ? *found : PromptEstimate{}};
}

TEST(PromptEstimate, CountsAFileThatIsLookedAtWhole) {
  const auto [scan, found] =
      look_at(prompt(3) + "\n" + prompt(70) + "{\"tokens\":[99]}\nnonsense\n" + prompt(4), 1 << 20);
  EXPECT_EQ(found.tokens, 77U) << "lines with an error count nothing";
  EXPECT_EQ(found.longest, 70U);
  EXPECT_EQ(scan.requests, 5U);
  EXPECT_EQ(scan.longest_line, prompt(70).size() - 1);
}

TEST(PromptEstimate, TakesTheRestToBeLikeTheBeginning) {
  std::string content;
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    content += prompt(20 + i % 7);
    tokens += 20 + i % 7;
  }
  content += prompt(500);
  const auto [scan, found] = look_at(content, content.size() / 10);
  EXPECT_GE(found.tokens, tokens + 500);
  EXPECT_LE(static_cast<double>(found.tokens), 1.12 * static_cast<double>(tokens + 500));
  EXPECT_GE(found.longest, 500U) << "no prompt is longer";
  EXPECT_EQ(scan.requests, 1001U);
}

TEST(PromptEstimate, AnEmptyFileHasNone) {
  const PromptEstimate found = look_at("", 1 << 20).estimate;
  EXPECT_EQ(found.tokens, 0U);
  EXPECT_FALSE(estimate_prompts("/no/such/file", {}, Task::score, {}, nullptr).is_ok());
}

}  // namespace
}  // namespace colibri
