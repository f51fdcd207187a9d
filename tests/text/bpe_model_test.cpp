// BPE against its definition: while any adjacent pair has a merge, apply the one of the best
// rank, leftmost first. The brute force rescans the word for every merge.
#include "io/text/bpe_model.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace colibri {
namespace {

std::vector<std::int32_t> encode(const BpeModel& model, std::string_view word) {
  BpeModel::Scratch scratch;
  std::vector<std::int32_t> ids;
  model.encode(word, scratch, ids);
  return ids;
}

std::vector<std::string> brute_force(const std::vector<MergeDefinition>& merges, const std::string& word) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (true) {
    std::size_t best_rank = merges.size();
    std::size_t best = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == parts[i] && merges[rank].right == parts[i + 1]) {
          best_rank = rank;
          best = i;
        }
      }
    }
    if (best_rank == merges.size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BpeModel, EqualsTheBruteForce) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    // Grows a random merge list as training does: each merge joins two known tokens.
    BpeDefinition definition;
    std::vector<std::string> tokens = {"a", "b", "c"};
    const std::size_t merges = 1 + random() % 14;
    while (definition.merges.size() < merges) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      // Each token has one way to be made, as in trained files.
      if (std::find(tokens.begin(), tokens.end(), left + right) != tokens.end()) continue;
      definition.merges.push_back({left, right});
      tokens.push_back(left + right);
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      definition.vocabulary.push_back({tokens[i], static_cast<std::int32_t>(3 * i)});
    }
    const auto model = BpeModel::build(definition);
    ASSERT_TRUE(model) << model.status().to_string();
    for (int trial = 0; trial < 20; ++trial) {
      std::string word;
      for (std::size_t length = random() % 60; word.size() < length;)
        word += static_cast<char>('a' + random() % 3);
      std::vector<std::string> parts;
      for (const std::int32_t id : encode(*model, word)) parts.emplace_back(model->vocabulary().text(id));
      ASSERT_EQ(parts, brute_force(definition.merges, word)) << word;
    }
  }
}

TEST(BpeModel, IgnoreMergesTakesWholeWords) {
  BpeDefinition definition;
  definition.vocabulary = {{"a", 0}, {"b", 1}, {"ab", 2}, {"aab", 3}};
  definition.merges = {{"a", "b"}};
  EXPECT_EQ(encode(*BpeModel::build(definition), "aab"), (std::vector<std::int32_t>{0, 2}));
  definition.ignore_merges = true;
  EXPECT_EQ(encode(*BpeModel::build(definition), "aab"), (std::vector<std::int32_t>{3}));
  EXPECT_EQ(encode(*BpeModel::build(definition), "aaab"), (std::vector<std::int32_t>{0, 0, 2}));
}

TEST(BpeModel, UnknownCharacters) {
  BpeDefinition definition;
  definition.vocabulary = {{"a", 0}, {"<unk>", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}};
  EXPECT_EQ(encode(*BpeModel::build(definition), "aéßa"), (std::vector<std::int32_t>{0, 0}));  // dropped
  definition.unk_token = "<unk>";
  EXPECT_EQ(encode(*BpeModel::build(definition), "aéßa"), (std::vector<std::int32_t>{0, 1, 1, 0}));
  definition.fuse_unk = true;
  EXPECT_EQ(encode(*BpeModel::build(definition), "aéßa"), (std::vector<std::int32_t>{0, 1, 0}));
  definition.byte_fallback = true;  // é has both bytes, ß (C3 9F) has not
  EXPECT_EQ(encode(*BpeModel::build(definition), "aéßa"), (std::vector<std::int32_t>{0, 2, 3, 1, 0}));
}

TEST(BpeModel, RefusesWhatDoesNotFit) {
  const auto error = [](BpeDefinition definition) {
    const auto model = BpeModel::build(definition);
    return model ? std::string() : model.status().to_string();
  };
  BpeDefinition good;
  good.vocabulary = {{"a", 0}, {"b", 1}, {"ab", 2}};
  good.merges = {{"a", "b"}};
  EXPECT_EQ(error(good), "");
  BpeDefinition bad = good;
  bad.merges.push_back({"ab", "a"});
  EXPECT_NE(error(bad).find("model.merges[1] ('ab', 'a') needs 'aba'"), std::string::npos) << error(bad);
  bad = good;
  bad.vocabulary.push_back({"c", 1});
  EXPECT_NE(error(bad).find("token id is given twice: 1 for 'b' and 'c'"), std::string::npos) << error(bad);
  bad = good;
  bad.vocabulary.push_back({"a", 7});
  EXPECT_NE(error(bad).find("token text is given twice: 'a'"), std::string::npos) << error(bad);
  bad = good;
  bad.vocabulary.push_back({"c", -1});
  EXPECT_NE(error(bad).find("token id is out of range"), std::string::npos) << error(bad);
  bad = good;
  bad.unk_token = "<unk>";
  EXPECT_NE(error(bad).find("model.unk_token '<unk>'"), std::string::npos) << error(bad);
}

}  // namespace
}  // namespace colibri
