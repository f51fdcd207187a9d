// Every case whose truth was written by Hugging Face tokenizers: ids with and without
// special tokens, the four decoded texts, and streamed text against decoded text.
//
// A case file holds {"tokenizer": NAME or "definition": {...}, "cases": [...]}. NAME is a
// folder of tests/golden/tokenizers; a definition is a whole tokenizer.json in place, for
// the components that those three do not use. What a case leaves out is equal to something
// else in it: see filled_in.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "io/text/utf8.hpp"

namespace colibri {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kData = COLIBRI_TEST_DATA;

std::vector<fs::path> case_files() {
  std::vector<fs::path> files;
  for (const char* name : {"qwen_style", "llama3_style", "llama2_style"}) {
    files.push_back(kData / "golden/tokenizers" / name / "tokenizer_cases.json");
  }
  for (const auto& entry : fs::directory_iterator(kData / "text")) {
    if (entry.path().filename().string().starts_with("extra_cases_")) files.push_back(entry.path());
  }
  std::sort(files.begin() + 3, files.end());
  return files;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const json& file) {
  auto tokenizer = file.contains("definition")
                       ? Tokenizer::parse(file["definition"].dump())
                       : Tokenizer::load(kData / "golden/tokenizers" / file["tokenizer"].get<std::string>() /
                                         "tokenizer.json");
  EXPECT_TRUE(tokenizer) << tokenizer.status().to_string();
  return tokenizer ? *tokenizer : nullptr;
}

json filled_in(json test_case) {
  const auto fill = [&](const char* field, const char* equal_to) {
    if (!test_case.contains(field)) test_case[field] = test_case[equal_to];
  };
  fill("ids_special", "ids");
  fill("decoded", "text");
  fill("decoded_skip", "decoded");
  fill("decoded_special", "decoded");
  fill("decoded_special_skip", "decoded_skip");
  return test_case;
}

std::string stream(const std::shared_ptr<const Tokenizer>& tokenizer, const std::vector<std::int32_t>& ids,
                   bool skip) {
  StreamDecoder decoder(tokenizer, skip);
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string piece = decoder.push(id);
    EXPECT_FALSE(first_invalid_utf8(piece)) << "a piece that is not whole characters";
    text += piece;
  }
  return text + decoder.flush();
}

class TokenizerCases : public testing::TestWithParam<fs::path> {};

TEST_P(TokenizerCases, EqualTheReference) {
  const json file = json::parse(std::ifstream(GetParam()));
  const auto tokenizer = tokenizer_of(file);
  ASSERT_TRUE(tokenizer);
  ASSERT_FALSE(file["cases"].empty());
  for (const json& given : file["cases"]) {
    const json test_case = filled_in(given);
    const std::string text = test_case["text"];
    SCOPED_TRACE(
        testing::Message() << "text "
                           << json(text.substr(0, 200)).dump(-1, ' ', true, json::error_handler_t::replace));
    for (const bool special : {false, true}) {
      const std::string suffix = special ? "_special" : "";
      const std::vector<std::int32_t> expected = test_case["ids" + suffix];
      const auto ids = tokenizer->encode(text, special);
      ASSERT_TRUE(ids) << ids.status().to_string();
      EXPECT_EQ(*ids, expected);
      for (const bool skip : {false, true}) {
        const std::string decoded = test_case["decoded" + suffix + (skip ? "_skip" : "")];
        EXPECT_EQ(tokenizer->decode(expected, skip), decoded);
        EXPECT_EQ(stream(tokenizer, expected, skip), decoded);
      }
    }
  }
  // Ids in orders that no text gives: halves of characters, runs of byte tokens.
  for (const json& test_case : file.value("decode_cases", json::array())) {
    const std::vector<std::int32_t> ids = test_case["ids"];
    SCOPED_TRACE(testing::Message() << "ids " << test_case["ids"].dump());
    EXPECT_EQ(tokenizer->decode(ids, false), test_case["decoded"].get<std::string>());
    EXPECT_EQ(stream(tokenizer, ids, false), test_case["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer->decode(ids, true), test_case["decoded_skip"].get<std::string>());
    EXPECT_EQ(stream(tokenizer, ids, true), test_case["decoded_skip"].get<std::string>());
  }
}

std::string name_of(const testing::TestParamInfo<fs::path>& info) {
  const fs::path& path = info.param;
  return path.stem() == "tokenizer_cases" ? path.parent_path().filename().string() : path.stem().string();
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerCases, testing::ValuesIn(case_files()), name_of);

}  // namespace
}  // namespace colibri
