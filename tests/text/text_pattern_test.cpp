// The translation of Oniguruma's dialect: spans as Oniguruma finds them (outputs of
// tokenizers 0.23.3, pre_tokenizers.Split with behavior "isolated"), and refusal by name.
#include "io/text/text_pattern.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/text/regex_syntax.hpp"

namespace colibri {
namespace {

std::vector<std::string> pieces(const std::string& regex, std::string_view text) {
  const auto pattern = TextPattern::regex(regex);
  EXPECT_TRUE(pattern) << pattern.status().to_string();
  if (!pattern) return {};
  std::vector<TextSpan> spans;
  const Status status = TextPattern::Search(*pattern).find_spans(text, spans);
  EXPECT_TRUE(status) << status.to_string();
  std::vector<std::string> result;
  for (const TextSpan& span : spans) {
    if (span.begin < span.end) result.emplace_back(text.substr(span.begin, span.end - span.begin));
  }
  return result;
}

using Pieces = std::vector<std::string>;

TEST(TextPattern, MeansWhatOnigurumaMeans) {
  // U+180E is not white space any more, U+0085 and U+00A0 are, U+001C and U+200B are not.
  EXPECT_EQ(pieces(R"(\s+)",
                   "a\u180eb\u0085c\u00a0d\x1c"
                   "e\u200bf"),
            (Pieces{"a\u180eb", "\u0085", "c", "\u00a0",
                    "d\x1c"
                    "e\u200bf"}));
  EXPECT_EQ(pieces(R"(^a)", "a\na"), (Pieces{"a", "\n", "a"}));
  EXPECT_EQ(pieces(R"(\w+)", "a\u0301-b\u203fc \u200d"), (Pieces{"a\u0301", "-", "b\u203fc", " \u200d"}));
  EXPECT_EQ(pieces(R"(\p{Han}+)", "漢、字"), (Pieces{"漢", "、", "字"}));
  EXPECT_EQ(pieces(R"((?i:'s))", "x'ſ y'S"), (Pieces{"x", "'ſ", " y", "'S"}));
  EXPECT_EQ(pieces(R"(\d{,2})", "12345"), (Pieces{"12", "34", "5"}));
  EXPECT_EQ(pieces(R"(a.b)", "a\nb a-b"), (Pieces{"a\nb ", "a-b"}));
}

TEST(TextPattern, TranslatesOnlyWhatDiffers) {
  const auto translated = [](std::string_view pattern) {
    const auto result = to_pcre2_syntax(pattern);
    return result ? *result : result.status().to_string();
  };
  EXPECT_EQ(translated(R"([^\r\n\p{L}\p{N}]?\p{L}+)"), R"([^\r\n\p{L}\p{N}]?\p{L}+)");
  EXPECT_EQ(translated(R"(\s+(?!\S))"), R"(\p{White_Space}+(?!\P{White_Space}))");
  EXPECT_EQ(translated(R"([\w.])"), R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}.])");
  EXPECT_EQ(translated(R"(\p{^Han}\P{Lu})"), R"(\P{sc:Han}\P{Lu})");
  EXPECT_EQ(translated(R"(\u4e00\x{1F600}\v{)"), R"(\x{4e00}\x{1F600}\x0b\{)");
}

TEST(TextPattern, RefusesByNameWhatItCannotTranslate) {
  for (const auto& [regex, named] :
       std::vector<std::pair<std::string, std::string>>{{"[a&&b]", "class intersection '&&'"},
                                                        {"[a[b]]", "a class inside a class"},
                                                        {"[[:alpha:]]", "a class inside a class"},
                                                        {R"([\W])", R"('\W' inside a class)"},
                                                        {"(?m:a)", "group '(?m:'"},
                                                        {"a(?i)b", "group '(?i)'"},
                                                        {"(*UTF)a", "group '(*'"},
                                                        {R"(a{1,3}+)", "'+' after an interval"},
                                                        {R"((a)\1)", R"(escape '\1')"},
                                                        {R"(\h)", R"(escape '\h')"},
                                                        {R"(\pL)", "a property without braces"},
                                                        {R"(\xff)", R"(a byte escape above \x7f)"},
                                                        {"a\\", R"(a '\' at the end)"},
                                                        {"(a", "cannot be compiled"},
                                                        {R"(\p{Klingon})", "cannot be compiled"},
                                                        {"", "an empty pattern"},
                                                        {"\xFF", "not valid UTF-8"}}) {
    const auto pattern = TextPattern::regex(regex);
    ASSERT_FALSE(pattern) << regex;
    EXPECT_NE(pattern.status().to_string().find(named), std::string::npos) << pattern.status().to_string();
  }
  EXPECT_FALSE(TextPattern::literal(""));
}

TEST(TextPattern, GivesUpInsteadOfHanging) {
  const auto pattern = TextPattern::regex("(?:a+)+[bd]");
  ASSERT_TRUE(pattern);
  std::vector<TextSpan> spans;
  const Status status = TextPattern::Search(*pattern).find_spans(std::string(64, 'a') + "c", spans);
  ASSERT_FALSE(status);
  EXPECT_NE(status.to_string().find("regular expression gave up at byte"), std::string::npos);
}

TEST(TextPattern, ReplacesEveryMatch) {
  const auto literal = TextPattern::literal("aa");
  EXPECT_EQ(*literal->replace_all("aaaaa b", "x"), "xxa b");
  EXPECT_EQ(*literal->replace_all("", "x"), "");
  const auto regex = TextPattern::regex(R"(\s+)");
  EXPECT_EQ(*regex->replace_all(" a \n b", "_"), "_a_b");
}

}  // namespace
}  // namespace colibri
