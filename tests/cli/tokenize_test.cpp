// colibri tokenize through the program: every golden case in all four combinations of flags, and
// lines that cannot be answered beside lines that can.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/text/json_document.hpp"
#include "io/text/json_output.hpp"
#include "tests/cli/cli_runner.hpp"

namespace colibri::test {
namespace {

const std::string kTokenizers = COLIBRI_TEST_DATA "/golden/tokenizers/";

std::vector<JsonValue> parsed_lines(const std::string& text) {
  std::vector<JsonValue> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    Result<JsonValue> value = parse_json(std::string_view(text).substr(begin, end - begin));
    EXPECT_TRUE(value.is_ok()) << value.status().to_string();
    lines.push_back(value ? std::move(value).value() : JsonValue());
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

std::vector<std::int64_t> integers(const JsonValue* list) {
  std::vector<std::int64_t> values;
  if (list == nullptr || list->array() == nullptr) return {-1};
  for (const JsonValue& item : *list->array()) {
    std::int64_t value = -1;
    item.to_signed(value);
    values.push_back(value);
  }
  return values;
}

struct Mode {
  std::vector<std::string> flags;
  const char* ids;  // members of a golden case
  const char* decoded;
};
const std::vector<Mode> kModes = {
    {{}, "ids_special", "decoded_special"},
    {{"--skip-special"}, "ids_special", "decoded_special_skip"},
    {{"--no-special"}, "ids", "decoded"},
    {{"--no-special", "--skip-special"}, "ids", "decoded_skip"},
};

class GoldenTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, MatchesEveryCase) {
  const std::string folder = kTokenizers + GetParam();
  const Result<JsonValue> golden = parse_json(read_file(folder + "/tokenizer_cases.json"));
  ASSERT_TRUE(golden.is_ok()) << golden.status().to_string();
  const JsonValue::Array& cases = *golden->find("cases")->array();
  RunOptions options;
  for (const JsonValue& item : cases) {
    options.input += "{\"text\": ";
    append_json_string(options.input, *item.find("text")->text());
    options.input += "}\n";
  }
  for (const Mode& mode : kModes) {
    std::vector<std::string> arguments = {"tokenize", folder + "/tokenizer.json", "--jsonl", "-"};
    arguments.insert(arguments.end(), mode.flags.begin(), mode.flags.end());
    const RunResult result = run_colibri(arguments, options);
    ASSERT_EQ(result.status, 0) << result.err;
    const std::vector<JsonValue> lines = parsed_lines(result.out);
    ASSERT_EQ(lines.size(), cases.size());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      EXPECT_EQ(integers(lines[i].find("ids")), integers(cases[i].find(mode.ids)))
          << mode.ids << " of case " << i;
      ASSERT_NE(lines[i].find("decoded"), nullptr);
      EXPECT_EQ(*lines[i].find("decoded")->text(), *cases[i].find(mode.decoded)->text())
          << mode.decoded << " of case " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTokenizer,
                         testing::Values("qwen_style", "llama3_style", "llama2_style"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Tokenize, AnswersGoodLinesBesideBadOnes) {
  TemporaryFolder folder;
  const std::string input = folder.file("texts.jsonl");
  // A byte order mark, CRLF, a blank line and a missing newline at the end are all fine.
  write_file(input,
             "\xef\xbb\xbf{\"text\": \"a\", \"note\": 1}\r\n"
             "\r\n"
             "not json\n"
             "{\"txet\": \"a\"}\n"
             "{\"text\": 7}\n"
             "[1]\n"
             "{\"text\": \"b\"}");
  // A folder is as good as the file in it.
  const RunResult result = run_colibri({"tokenize", kTokenizers + "qwen_style", "--jsonl", input});
  EXPECT_EQ(result.status, 3);
  EXPECT_NE(result.err.find("lines that failed"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(": 4"), std::string::npos) << result.err;
  const std::vector<JsonValue> lines = parsed_lines(result.out);
  ASSERT_EQ(lines.size(), 6U);
  for (const std::size_t good : {0U, 5U}) EXPECT_NE(lines[good].find("ids"), nullptr);
  for (const std::size_t bad : {1U, 2U, 3U, 4U}) {
    const JsonValue* error = lines[bad].find("error");
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(*error->find("code")->text(), "invalid_input");
    EXPECT_FALSE(error->find("message")->text()->empty());
  }
}

TEST(Tokenize, EmptyInputGivesEmptyOutput) {
  const RunResult result = run_colibri({"tokenize", kTokenizers + "qwen_style", "--jsonl", "-"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace colibri::test
