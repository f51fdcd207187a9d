// Byte-pair encoding: one pre-token in, token ids out.
//
// The word is cut into characters, each looked up in the vocabulary (with byte fallback or
// the unknown token for the rest); then the adjacent pair with the best merge rank, leftmost
// first among equals, is merged until none is left. A priority queue over a linked list
// keeps this at n log n: without a pre-tokenizer a whole document is one word.
// Immutable once built; each thread brings its own Scratch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "io/status.hpp"
#include "io/text/merge_table.hpp"
#include "io/text/tokenizer_definition.hpp"
#include "io/text/vocabulary.hpp"

namespace colibri {

class BpeModel {
 public:
  // Refuses merges of unknown tokens, an unknown unk_token, and what Vocabulary::add refuses.
  static Result<BpeModel> build(const BpeDefinition& definition);

  // Reusable working memory of encode.
  class Scratch {
    friend class BpeModel;
    struct Symbol {
      std::int32_t id;  // -1: merged away
      std::int32_t previous;
      std::int32_t next;
    };
    struct Candidate {
      std::uint64_t priority;  // rank, then position of the left symbol
      std::int32_t merged_id;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;  // a heap, smallest priority on top
  };

  // Appends the ids of `word` (valid UTF-8, under 2 GiB).
  void encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;

  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }

 private:
  BpeModel() = default;
  void split_characters(std::string_view word, std::vector<Scratch::Symbol>& symbols) const;
  std::optional<std::int32_t> character_id(std::string_view character) const;
  void merge(Scratch& scratch) const;
  void offer(Scratch& scratch, std::int32_t left, std::int32_t right) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::array<std::int32_t, 128> ascii_ids_{};     // -1: not in the vocabulary
  std::array<std::int32_t, 256> fallback_ids_{};  // id of <0xNN>; -1: none, or no byte fallback
  std::optional<std::int32_t> unk_id_;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
};

}  // namespace colibri
