// Malformed and unsupported tokenizer.json files: an error that names the place, never a
// crash. One good small file is damaged in one way at a time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "tests/support/test_scale.hpp"

namespace colibri {
namespace {

using nlohmann::json;

const json kSmall = json::parse(R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [
    {"id": 4, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": true}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Prepend", "prepend": "_"}]},
  "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "b+"}, "behavior": "Isolated", "invert": false},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
  "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"},
    {"type": "Strip", "content": "_", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {"_": 0, "a": 1, "b": 2, "ab": 3}, "merges": [["a", "b"]]}
})");

std::string error_of(const std::string& text) {
  const auto tokenizer = Tokenizer::parse(text);
  return tokenizer ? std::string() : tokenizer.status().to_string();
}

// The error after `value` is put at `pointer` (or what is there is removed).
std::string error_with(const char* pointer, const json& value) {
  json damaged = kSmall;
  damaged[json::json_pointer(pointer)] = value;
  return error_of(damaged.dump());
}

std::string error_without(const char* parent, const char* key) {
  json damaged = kSmall;
  damaged[json::json_pointer(parent)].erase(key);
  return error_of(damaged.dump());
}

#define EXPECT_NAMES(error, named) \
  EXPECT_NE((error).find(named), std::string::npos) << "error: '" << (error) << "'"

TEST(TokenizerFile, TheSmallFileIsGood) {
  const auto loaded = Tokenizer::parse(kSmall.dump());
  ASSERT_TRUE(loaded) << loaded.status().to_string();
  const Tokenizer& tokenizer = **loaded;
  EXPECT_EQ(*tokenizer.encode("aab<s>b", true), (std::vector<std::int32_t>{4, 0, 1, 1, 2, 4, 0, 2}));
  EXPECT_EQ(tokenizer.vocab_size(), 5);
  EXPECT_EQ(tokenizer.token_id("ab"), 3);
  EXPECT_EQ(tokenizer.token_id("<s>"), 4);
  EXPECT_EQ(tokenizer.token_id("zz"), std::nullopt);
  EXPECT_EQ(tokenizer.token_text(3), "ab");
  EXPECT_EQ(tokenizer.token_text(99), "");
  EXPECT_EQ(tokenizer.token_text(-1), "");
  EXPECT_TRUE(tokenizer.is_special(4));
  EXPECT_FALSE(tokenizer.is_special(3));
  EXPECT_FALSE(tokenizer.is_special(-7));
  EXPECT_EQ(tokenizer.begin_token(), 4);
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{4, 0, -5, 1, 77, 0, 3}, true), "a_ab");
}

TEST(TokenizerFile, BeginTokenIsOnlyThereIfTheTemplateHasOne) {
  json file = kSmall;
  file["post_processor"] = nullptr;
  EXPECT_EQ((*Tokenizer::parse(file.dump()))->begin_token(), std::nullopt);
  file = kSmall;
  std::swap(file["post_processor"]["single"][0], file["post_processor"]["single"][1]);
  const auto tokenizer = *Tokenizer::parse(file.dump());
  EXPECT_EQ(tokenizer->begin_token(), std::nullopt);
  EXPECT_EQ(*tokenizer->encode("a", true), (std::vector<std::int32_t>{0, 1, 4}));
}

TEST(TokenizerFile, UnsupportedComponentsAreNamed) {
  EXPECT_EQ(
      error_with("/normalizer", {{"type", "Lowercase"}}),
      "normalizer.type 'Lowercase' is not supported; supported: Sequence, NFC, NFD, NFKC, NFKD, Prepend, "
      "Replace, Strip");
  EXPECT_NAMES(error_with("/normalizer/normalizers/1", {{"type", "Precompiled"}}),
               "normalizer.normalizers[1].type 'Precompiled' is not supported");
  EXPECT_NAMES(error_with("/pre_tokenizer", {{"type", "UnicodeScripts"}}),
               "pre_tokenizer.type 'UnicodeScripts'");
  EXPECT_NAMES(error_with("/decoder/decoders/0", {{"type", "CTC"}}), "decoder.decoders[0].type 'CTC'");
  EXPECT_NAMES(error_with("/post_processor", {{"type", "BertProcessing"}}),
               "post_processor.type 'BertProcessing'");
  EXPECT_NAMES(error_with("/model/type", "Unigram"), "model.type 'Unigram' is not supported; supported: BPE");
  EXPECT_NAMES(error_with("/model/dropout", 0.1), "model.dropout");
  EXPECT_NAMES(error_with("/model/end_of_word_suffix", "</w>"), "model.end_of_word_suffix '</w>'");
  EXPECT_NAMES(error_with("/pre_tokenizer/pattern/Regex", "[a&&b]"),
               "pre_tokenizer: regular expression construct");
  EXPECT_NAMES(error_with("/pre_tokenizer/behavior", "Sideways"), "pre_tokenizer.behavior 'Sideways'");
}

TEST(TokenizerFile, MissingAndWronglyTypedFieldsAreNamed) {
  EXPECT_NAMES(error_without("", "model"), "field is missing: model; expected an object");
  EXPECT_NAMES(error_without("/model", "vocab"), "field is missing: model.vocab");
  EXPECT_NAMES(error_without("/model", "merges"), "field is missing: model.merges");
  EXPECT_NAMES(error_without("/added_tokens/0", "id"), "field is missing: added_tokens[0].id");
  EXPECT_NAMES(error_without("/normalizer/normalizers/1", "prepend"), "normalizer.normalizers[1].prepend");
  EXPECT_NAMES(error_without("/pre_tokenizer", "invert"), "field is missing: pre_tokenizer.invert");
  EXPECT_NAMES(error_with("", 5), "the document is of type number");
  EXPECT_NAMES(error_with("", json::array()), "the document is of type array");
  EXPECT_NAMES(error_with("/model", "x"), "model is of type string");
  EXPECT_NAMES(error_with("/model/vocab", json::array({json::array({"a", -1.5})})),
               "model.vocab is of type array");
  EXPECT_NAMES(error_with("/model/vocab", 3), "model.vocab is of type number");
  EXPECT_NAMES(error_with("/model/vocab/a", "one"), "model.vocab['a']");
  EXPECT_NAMES(error_with("/model/vocab/a", 1.0), "model.vocab['a']");
  EXPECT_NAMES(error_with("/model/vocab/a", nullptr), "model.vocab['a']");
  EXPECT_NAMES(error_with("/model/vocab/a", {{"x", {{"y", 1}}}}), "model.vocab['a']");
  EXPECT_NAMES(error_with("/model/merges", {{"a", "b"}}), "model.merges is of type object");
  EXPECT_NAMES(error_with("/model/unk_token", 3), "model.unk_token is of type number");
  EXPECT_NAMES(error_with("/model/byte_fallback", "yes"), "model.byte_fallback");
  EXPECT_NAMES(error_with("/added_tokens", 1), "added_tokens is of type number");
  EXPECT_NAMES(error_with("/added_tokens/0", "x"), "added_tokens[0] is of type string");
  EXPECT_NAMES(error_with("/added_tokens/0/special", 1), "added_tokens[0].special");
  EXPECT_NAMES(error_with("/normalizer", 7), "normalizer is of type number");
  EXPECT_NAMES(error_with("/decoder/decoders/1/content", "xy"), "decoder.decoders[1].content is 'xy'");
  EXPECT_NAMES(error_with("/decoder/decoders/1/start", -1), "decoder.decoders[1].start is -1");
  EXPECT_NAMES(error_with("/post_processor/special_tokens/<s>/ids", "x"),
               "post_processor.special_tokens.<s>.ids");
  EXPECT_NAMES(error_with("/post_processor/single", json::array()), "post_processor.single");
}

TEST(TokenizerFile, ContradictionsAreNamed) {
  EXPECT_NAMES(error_with("/model/vocab/a", 2), "token id is given twice: 2");
  EXPECT_NAMES(error_with("/model/vocab/a", -1), "model.vocab['a'] is -1");
  EXPECT_NAMES(error_with("/model/vocab/a", 4000000000u), "model.vocab['a'] is 4000000000; expected 0 to");
  EXPECT_NAMES(error_with("/model/vocab/a", 18446744073709551615u), "is 18446744073709551615; expected 0 to");
  EXPECT_NAMES(error_with("/added_tokens/0/id", 3), "added_tokens[0] '<s>' has id 3, the model has 'ab'");
  EXPECT_NAMES(error_with("/added_tokens/0/id", 1e15), "added_tokens[0].id");
  EXPECT_NAMES(error_with("/added_tokens/0/content", "a"),
               "added_tokens[0] 'a' has id 4, the model has 'a' with id 1");
  EXPECT_NAMES(error_with("/added_tokens/0/content", ""), "added_tokens[0].content");
  EXPECT_NAMES(error_with("/added_tokens/1", kSmall["added_tokens"][0]), "token id is given twice: 4");
  EXPECT_NAMES(error_with("/model/merges/0", {"a", "x"}), "model.merges[0] ('a', 'x') needs 'x'");
  EXPECT_NAMES(error_with("/model/merges/0", {"a", "a"}), "needs 'aa'");
  EXPECT_NAMES(error_with("/model/merges/0", {"a"}), "model.merges[0] has 1 elements");
  EXPECT_NAMES(error_with("/model/merges/0", {"a", "b", "a"}), "model.merges[0] has 3 elements");
  EXPECT_NAMES(error_with("/model/merges/0", {"a", 3}), "model.merges[0]");
  EXPECT_NAMES(error_with("/model/merges/0", {{"a", {"b"}}}), "model.merges[0]");
  EXPECT_NAMES(error_with("/model/merges/0", "ab"), "model.merges[0] is 'ab'");
  EXPECT_NAMES(error_with("/model/merges/0", "a b c"), "model.merges[0] is 'a b c'");
  EXPECT_NAMES(error_with("/model/merges/0", 9), "model.merges[0]");
  EXPECT_NAMES(error_with("/model/unk_token", "<unk>"), "model.unk_token '<unk>'");
  EXPECT_NAMES(error_with("/post_processor/special_tokens/<s>/ids", {77}), "post_processor adds id 77");
  std::string twice = kSmall.dump();
  twice.replace(twice.find("\"a\":1"), 5, "\"a\":1,\"a\":9");
  EXPECT_NAMES(error_of(twice), "token text is given twice: 'a'");
}

TEST(TokenizerFile, GiganticNumbersAndDeepNesting) {
  std::string text = kSmall.dump();
  text.replace(text.find("\"a\":1"), 5, "\"a\":1e99999");
  EXPECT_NE(error_of(text), "");
  text = kSmall.dump();
  text.replace(text.find("\"a\":1"), 5, "\"a\":" + std::string(5000, '9'));
  EXPECT_NE(error_of(text), "");

  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 100; ++i) deep = {{"type", "Sequence"}, {"normalizers", json::array({deep})}};
  EXPECT_NAMES(error_with("/normalizer", deep), "nests more than 16 sequences");
  EXPECT_NE(error_of(std::string(1'000'000, '[')), "");
  EXPECT_NE(error_of("{\"normalizer\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}"),
            "");
}

TEST(TokenizerFile, EveryTruncationIsAnError) {
  const std::string text = kSmall.dump();
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_NAMES(error_of(text.substr(0, length)), "text is not valid JSON at byte");
  }
}

TEST(TokenizerFile, DamagedBytesNeverCrash) {
  const std::string good = kSmall.dump();
  std::mt19937 random(3);
  for (int round = 0; round < testing::scaled(20'000, 3000); ++round) {
    std::string text = good;
    for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, 1 + random() % 8); break;
        default: text.insert(at, text.substr(random() % text.size(), 1 + random() % 12)); break;
      }
      if (text.empty()) text = "x";
    }
    if (const auto tokenizer = Tokenizer::parse(text)) {
      const auto ids = (*tokenizer)->encode("ab<s>_ é\n", true);
      if (ids) static_cast<void>((*tokenizer)->decode(*ids, false));
    }
  }
}

TEST(TokenizerFile, LoadNamesTheFile) {
  const auto directory = std::filesystem::temp_directory_path();
  const auto missing = Tokenizer::load(directory / "colibri_no_such_tokenizer.json");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.status().code(), ErrorCode::not_found);
  EXPECT_NAMES(missing.status().to_string(), "colibri_no_such_tokenizer.json: tokenizer file cannot be read");
  const auto folder = Tokenizer::load(directory);
  ASSERT_FALSE(folder);
  EXPECT_NAMES(folder.status().to_string(), directory.string());
  EXPECT_EQ(folder.status().file(), directory.string()) << "for programs, too";
  EXPECT_EQ(missing.status().file(), (directory / "colibri_no_such_tokenizer.json").string());
  const auto bad = directory / ("colibri_bad_tokenizer_" + std::to_string(::getpid()) + ".json");
  std::ofstream(bad) << "{\"model\": 1}";
  EXPECT_EQ(Tokenizer::load(bad).status().file(), bad.string());
  std::filesystem::remove(bad);
}

TEST(TokenizerFile, TextMustBeUtf8) {
  const auto tokenizer = *Tokenizer::parse(kSmall.dump());
  const auto ids = tokenizer->encode("abc\xC3(", false);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.status().code(), ErrorCode::invalid_input);
  EXPECT_EQ(ids.status().to_string(),
            "text is not valid UTF-8: bad byte at offset 3; convert the text to UTF-8");
}

}  // namespace
}  // namespace colibri
