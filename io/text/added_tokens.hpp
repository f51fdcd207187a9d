// The added tokens of a tokenizer.json (special or not): found in the text before anything
// else looks at it, first those that are matched against raw text, then, in what is left
// and after normalization, those that are matched against normalized text.
// Immutable once built and thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/status.hpp"
#include "io/text/normalizer.hpp"
#include "io/text/tokenizer_definition.hpp"
#include "io/text/vocabulary.hpp"

namespace colibri {

class AddedTokens {
 public:
  // A stretch of text: an added token, or text between them (id -1).
  struct Segment {
    std::size_t begin;
    std::size_t end;
    std::int32_t id;
  };

  // Refuses tokens whose id or text contradicts `model_vocabulary`, and duplicates.
  static Result<AddedTokens> build(std::vector<AddedTokenDefinition> definitions,
                                   const Vocabulary& model_vocabulary, const Normalizer& normalizer);

  // Replaces `segments` by a cover of `text` (less what lstrip and rstrip swallow).
  void split_raw(std::string_view text, std::vector<Segment>& segments) const;
  void split_normalized(std::string_view text, std::vector<Segment>& segments) const;

  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }
  bool is_special(std::int32_t id) const noexcept;
  // What the decoder is given for an added token: its text in the form in which it was looked
  // for, so that a decoder that undoes the normalizer sees what it expects.
  std::string_view decoder_text(std::int32_t id) const noexcept;

 private:
  // A byte trie over token texts; children of a node are a linked list, those of the root a
  // table, since nearly every text position fails there.
  class Trie {
   public:
    void insert(std::string_view text, std::size_t token);
    struct Match {
      std::size_t end;
      std::size_t token;
    };
    // The longest token that starts at `begin`.
    std::optional<Match> longest_at(std::string_view text, std::size_t begin) const noexcept;

   private:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    struct Node {
      std::uint32_t first_child = kNone;
      std::uint32_t next_sibling = kNone;
      std::uint32_t token = kNone;
      char byte = 0;
    };
    std::uint32_t child(std::uint32_t node, char byte) const noexcept;
    std::uint32_t new_node(char byte);

    std::vector<Node> nodes_;
    std::array<std::uint32_t, 256> roots_ = no_roots();
    static constexpr std::array<std::uint32_t, 256> no_roots() noexcept {
      std::array<std::uint32_t, 256> roots{};
      roots.fill(kNone);
      return roots;
    }
  };

  AddedTokens() = default;
  void split(const Trie& trie, std::string_view text, std::vector<Segment>& segments) const;

  std::vector<AddedTokenDefinition> tokens_;
  Vocabulary vocabulary_;
  std::vector<bool> special_;                                       // by id
  std::unordered_map<std::int32_t, std::string> normalized_texts_;  // where it differs from the content
  Trie raw_;
  Trie normalized_;
};

}  // namespace colibri
