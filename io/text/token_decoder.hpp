// The decoder of a tokenizer.json as a chain of streaming stages: token texts go in one by
// one, text comes out as soon as no later token can change it. Decoding a whole list is the
// same chain fed to its end, so streamed and whole text cannot differ.
//
// TokenDecoder is the immutable description, shared between threads; a TokenDecoder::Stream
// is the state of one text.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"
#include "io/text/text_pattern.hpp"
#include "io/text/tokenizer_definition.hpp"

namespace colibri {

class TokenDecoder {
 public:
  // Without steps (nullopt) tokens are joined by spaces.
  static Result<TokenDecoder> build(const std::optional<std::vector<DecoderStep>>& steps);

  class Stage;  // one step of a running chain; known to token_decoder.cpp only

  class Stream {
   public:
    explicit Stream(const TokenDecoder& decoder);  // `decoder` must outlive the stream
    ~Stream();
    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;

    // Text that the token completes, appended to `text`; always whole characters.
    void push(std::string_view token_text, std::string& text);
    // The rest, appended to `text`. Nothing may be pushed after it.
    void finish(std::string& text);

   private:
    std::unique_ptr<Stage> first_;
    std::unique_ptr<std::string> out_;  // where the last stage writes; stable address
  };

 private:
  struct Step {
    DecoderStep definition;
    std::optional<TextPattern> pattern;  // replace
  };
  TokenDecoder() = default;

  std::vector<Step> steps_;
  bool join_with_spaces_ = false;
};

}  // namespace colibri
