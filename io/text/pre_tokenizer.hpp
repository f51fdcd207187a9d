// The pre-tokenizer of a tokenizer.json: cuts normalized text into the words that BPE works
// on, and rewrites them where the scheme asks for it (bytes as characters, spaces as U+2581).
// Immutable and thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"
#include "io/text/text_pattern.hpp"
#include "io/text/tokenizer_definition.hpp"

namespace colibri {

// Words in order, as ranges of one text.
struct WordList {
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  std::string text;
  std::vector<Range> words;     // never empty ones
  bool at_input_start = false;  // whether words[0] is where the whole input begins

  std::string_view word(std::size_t index) const {
    return std::string_view(text).substr(words[index].begin, words[index].end - words[index].begin);
  }
};

class PreTokenizer {
 public:
  static Result<PreTokenizer> build(const std::vector<PreTokenizerStep>& steps);

  // `list` comes in as one word. Fails when a regular expression gives up.
  Status apply(WordList& list) const;

 private:
  struct Step {
    PreTokenizerStep definition;
    std::optional<TextPattern> pattern;  // where this step cuts
    SplitBehavior behavior = SplitBehavior::isolated;
  };
  PreTokenizer() = default;

  std::vector<Step> steps_;
};

}  // namespace colibri
