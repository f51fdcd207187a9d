// The text normalizer of a tokenizer.json: a list of steps applied to each stretch of text
// between added tokens. Immutable and thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/status.hpp"
#include "io/text/text_pattern.hpp"
#include "io/text/tokenizer_definition.hpp"

namespace colibri {

class Normalizer {
 public:
  static Result<Normalizer> build(const std::vector<NormalizerStep>& steps);

  // Replaces `text` (valid UTF-8) by its normalized form. Fails when a regular expression
  // gives up or memory runs out.
  Status apply(std::string& text) const;

 private:
  struct Step {
    NormalizerStep definition;
    std::optional<TextPattern> pattern;  // replace
  };
  Normalizer() = default;

  std::vector<Step> steps_;
};

}  // namespace colibri
