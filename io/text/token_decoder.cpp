// A stage receives tokens as fragments: most tokens are one fragment, but Fuse makes one
// endless token of everything behind it, which must still flow. Stages that need a whole
// token collect its fragments first. Each step follows the reference (Hugging Face
// tokenizers, decoders/), including that one bad byte spoils its whole run of byte tokens.
#include "io/text/token_decoder.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "io/text/byte_level.hpp"
#include "io/text/utf8.hpp"

namespace colibri {

class TokenDecoder::Stage {
 public:
  virtual ~Stage() = default;
  // The next piece (whole characters) of the current token, and whether the token ends.
  virtual void fragment(std::string_view text, bool ends_token) = 0;
  // No more tokens; the current one has ended.
  virtual void finish() { next_->finish(); }

  // Chains are built from the end, so that each stage owns the next.
  void connect(std::unique_ptr<Stage> next) { next_ = std::move(next); }

 protected:
  void pass(std::string_view text, bool ends_token) { next_->fragment(text, ends_token); }

 private:
  std::unique_ptr<Stage> next_;
};

namespace {

using Stage = TokenDecoder::Stage;

// Base of the stages that look at whole tokens.
class WholeTokenStage : public Stage {
 public:
  void fragment(std::string_view text, bool ends_token) final {
    if (ends_token && pending_.empty()) return token(text);
    pending_ += text;
    if (!ends_token) return;
    token(pending_);
    pending_.clear();
  }

 private:
  virtual void token(std::string_view text) = 0;
  std::string pending_;
};

// The end of the chain.
class WriteStage final : public Stage {
 public:
  explicit WriteStage(std::string& out) : out_(out) {}
  void fragment(std::string_view text, bool) override { out_ += text; }
  void finish() override {}

 private:
  std::string& out_;
};

// Without a decoder the reference puts a space between tokens.
class JoinStage final : public WholeTokenStage {
  void token(std::string_view text) override {
    if (!first_) pass(" ", true);
    first_ = false;
    pass(text, true);
  }
  bool first_ = true;
};

class ReplaceStage final : public WholeTokenStage {
 public:
  ReplaceStage(const TextPattern& pattern, std::string_view content) : pattern_(pattern), content_(content) {}

 private:
  void token(std::string_view text) override {
    // Fails only if a pattern backtracks without end: then the token stays as it is.
    const Result<std::string> replaced = pattern_.replace_all(text, content_);
    pass(replaced ? std::string_view(*replaced) : text, true);
  }
  const TextPattern& pattern_;
  std::string_view content_;
};

// Replace of a single character needs no whole token, so it can stand behind Fuse.
class ReplaceCharacterStage final : public Stage {
 public:
  ReplaceCharacterStage(std::string_view character, std::string_view content)
      : character_(character), content_(content) {}

  void fragment(std::string_view text, bool ends_token) override {
    replaced_.clear();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t found = std::min(text.find(character_, at), text.size());
      replaced_ += text.substr(at, found - at);
      if (found == text.size()) break;
      replaced_ += content_;
      at = found + character_.size();
    }
    pass(replaced_, ends_token);
  }

 private:
  std::string_view character_;
  std::string_view content_;
  std::string replaced_;
};

// Holds a run of byte tokens until it ends: a later bad byte turns all of it into U+FFFD.
class ByteFallbackStage final : public WholeTokenStage {
 public:
  void finish() override {
    end_run();
    Stage::finish();
  }

 private:
  static std::optional<char> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    std::uint8_t byte = 0;
    const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
    if (error != std::errc() || end != token.data() + 5) return std::nullopt;
    return static_cast<char>(byte);
  }

  void token(std::string_view text) override {
    if (const auto byte = byte_of(text)) {
      run_ += *byte;
      return;
    }
    end_run();
    pass(text, true);
  }

  void end_run() {
    if (run_.empty()) return;
    if (!first_invalid_utf8(run_)) {
      pass(run_, true);
    } else {
      // One replacement a byte, and the good bytes of the run are lost as well.
      for (std::size_t i = 0; i < run_.size(); ++i) pass(kReplacementCharacter, true);
    }
    run_.clear();
  }

  std::string run_;
};

// Everything is one token from here on; it ends when the text ends.
class FuseStage final : public Stage {
 public:
  void fragment(std::string_view text, bool) override { pass(text, false); }
  void finish() override {
    pass({}, true);
    Stage::finish();
  }
};

// All bytes are one text; a character waits until its last byte is there.
class ByteLevelStage final : public WholeTokenStage {
 public:
  void finish() override {
    text_.clear();
    append_utf8_lossy(text_, bytes_);
    pass(text_, true);
    Stage::finish();
  }

 private:
  void token(std::string_view text) override {
    kByteLevelAlphabet.append_bytes(bytes_, text);
    // Broken bytes pass at once as U+FFFD; only what could still become a character waits.
    const std::size_t ready = bytes_.size() - incomplete_tail_length(bytes_);
    text_.clear();
    append_utf8_lossy(text_, std::string_view(bytes_).substr(0, ready));
    bytes_.erase(0, ready);
    pass(text_, false);
  }

  std::string bytes_;  // at most three between tokens
  std::string text_;
};

// Cuts up to `start` and `stop` copies of a character off the ends of each token.
class StripStage final : public Stage {
 public:
  StripStage(std::string_view character, std::size_t start, std::size_t stop)
      : character_(character), start_(start), stop_(stop), start_left_(start) {}

  void fragment(std::string_view text, bool ends_token) override {
    while (start_left_ > 0 && !text.empty()) {
      if (!text.starts_with(character_)) {
        start_left_ = 0;
        break;
      }
      text.remove_prefix(character_.size());
      --start_left_;
    }
    // What could be cut off the end is held back.
    held_ += text;
    std::size_t ready = held_.size();
    for (std::size_t cut = 0; cut < stop_; ++cut) {
      if (!std::string_view(held_).substr(0, ready).ends_with(character_)) break;
      ready -= character_.size();
    }
    pass(std::string_view(held_).substr(0, ready), ends_token);
    held_.erase(0, ends_token ? held_.size() : ready);
    if (ends_token) start_left_ = start_;
  }

 private:
  std::string_view character_;
  std::size_t start_;
  std::size_t stop_;
  std::size_t start_left_;  // copies that may still be cut off the front of this token
  std::string held_;
};

class MetaspaceStage final : public Stage {
 public:
  MetaspaceStage(std::string_view character, bool drop_first)
      : character_(character), in_first_(drop_first) {}

  void fragment(std::string_view text, bool ends_token) override {
    spaced_.clear();
    for (std::size_t at = 0; at < text.size();) {
      if (text.substr(at).starts_with(character_)) {
        // The reference drops every such character of the first token, not only a leading one.
        if (!in_first_) spaced_ += ' ';
        at += character_.size();
      } else {
        spaced_ += text[at++];
      }
    }
    if (ends_token) in_first_ = false;
    pass(spaced_, ends_token);
  }

 private:
  std::string_view character_;
  bool in_first_;
  std::string spaced_;
};

}  // namespace

Result<TokenDecoder> TokenDecoder::build(const std::optional<std::vector<DecoderStep>>& steps) {
  TokenDecoder decoder;
  decoder.join_with_spaces_ = !steps;
  for (const DecoderStep& definition : steps ? *steps : std::vector<DecoderStep>{}) {
    Step step{definition, std::nullopt};
    if (definition.kind == DecoderKind::replace) {
      COLIBRI_ASSIGN_OR_RETURN(step.pattern, TextPattern::from(definition.pattern));
    }
    decoder.steps_.push_back(std::move(step));
  }
  return decoder;
}

TokenDecoder::Stream::Stream(const TokenDecoder& decoder) : out_(std::make_unique<std::string>()) {
  const auto stage_of = [](const Step& step) -> std::unique_ptr<Stage> {
    const DecoderStep& definition = step.definition;
    switch (definition.kind) {
      case DecoderKind::byte_level: return std::make_unique<ByteLevelStage>();
      case DecoderKind::byte_fallback: return std::make_unique<ByteFallbackStage>();
      case DecoderKind::fuse: return std::make_unique<FuseStage>();
      case DecoderKind::strip:
        return std::make_unique<StripStage>(definition.content, definition.strip_start,
                                            definition.strip_stop);
      case DecoderKind::metaspace:
        return std::make_unique<MetaspaceStage>(definition.content, definition.drop_first_space);
      case DecoderKind::replace: break;
    }
    // A longer literal or an expression could match across fragments and needs whole tokens.
    const std::string_view literal = step.pattern->literal_text();
    if (!literal.empty() && code_point_at(literal, 0).length == literal.size()) {
      return std::make_unique<ReplaceCharacterStage>(literal, definition.content);
    }
    return std::make_unique<ReplaceStage>(*step.pattern, definition.content);
  };
  // The string has a fixed address: the last stage keeps a reference when the stream moves.
  first_ = std::make_unique<WriteStage>(*out_);
  for (auto step = decoder.steps_.rbegin(); step != decoder.steps_.rend(); ++step) {
    std::unique_ptr<Stage> stage = stage_of(*step);
    stage->connect(std::move(first_));
    first_ = std::move(stage);
  }
  if (decoder.join_with_spaces_) {
    auto join = std::make_unique<JoinStage>();
    join->connect(std::move(first_));
    first_ = std::move(join);
  }
}

TokenDecoder::Stream::~Stream() = default;
TokenDecoder::Stream::Stream(Stream&&) noexcept = default;
TokenDecoder::Stream& TokenDecoder::Stream::operator=(Stream&&) noexcept = default;

void TokenDecoder::Stream::push(std::string_view token_text, std::string& text) {
  first_->fragment(token_text, true);
  text += *out_;
  out_->clear();
}

void TokenDecoder::Stream::finish(std::string& text) {
  first_->finish();
  text += *out_;
  out_->clear();
}

}  // namespace colibri
