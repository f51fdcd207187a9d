// A literal string or a regular expression that cuts text into matches and gaps: the
// "pattern" of Split and Replace in tokenizer.json.
//
// Immutable and safe to share between threads; all state of a search is local to a call or
// to a TextPattern::Search, which one thread reuses for many texts.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"
#include "io/text/tokenizer_definition.hpp"

namespace colibri {

struct TextSpan {
  std::size_t begin;
  std::size_t end;
  bool is_match;
};

class TextPattern {
 public:
  static Result<TextPattern> literal(std::string text);
  // In the syntax of Oniguruma, see regex_syntax.hpp.
  static Result<TextPattern> regex(std::string_view pattern);

  static Result<TextPattern> from(const PatternDefinition& definition);

  // The literal text, empty for a regular expression.
  std::string_view literal_text() const noexcept { return literal_; }

  class Search {
   public:
    explicit Search(const TextPattern& pattern);  // `pattern` must outlive the search
    ~Search();
    Search(Search&&) noexcept;
    Search& operator=(Search&&) noexcept;

    // Replaces `spans` by matches and gaps that cover `valid_text` in order. Empty matches
    // are reported as the regular expression finds them, never twice at one place. Fails
    // if the expression backtracks beyond its limit.
    Status find_spans(std::string_view valid_text, std::vector<TextSpan>& spans);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

  // `valid_text` with every match replaced by `content`.
  Result<std::string> replace_all(std::string_view valid_text, std::string_view content) const;

 private:
  struct Code;
  TextPattern() = default;

  std::string literal_;
  std::shared_ptr<const Code> code_;  // null for a literal
};

}  // namespace colibri
