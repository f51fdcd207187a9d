// Text to token ids and back, from a tokenizer.json as Hugging Face tokenizers writes it:
// byte-level BPE (Qwen, Llama 3, GPT kinds) and byte-fallback BPE (Llama 2, Mixtral kinds).
// Results equal those of that library exactly; a component that is not supported is refused
// by name when the file is loaded, never approximated.
//
// A Tokenizer is immutable after load and safe to use from any number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"
#include "kernels/export.hpp"

namespace colibri {

class StreamDecoder;

class COLIBRI_API Tokenizer {
 public:
  // Fails with the JSON path of whatever is malformed, contradictory or not supported.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& tokenizer_json);
  // The same from the text of such a file.
  static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view json_text);

  ~Tokenizer();

  // The ids of `text`; with `add_special_tokens` inside what the post-processor puts around
  // a single sequence. Fails on invalid UTF-8 (naming the byte offset), on text of 1 GiB and
  // more, and when the file's regular expressions give up. Time is n log n in the text.
  Result<std::vector<std::int32_t>> encode(std::string_view text, bool add_special_tokens) const;

  // The text of `ids`; ids that are not in the vocabulary are left out.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const;

  // Every id is smaller than this; ids below it may be unused.
  std::int32_t vocab_size() const noexcept;
  // The id of a token's text as the vocabulary writes it (byte-level characters, U+2581).
  std::optional<std::int32_t> token_id(std::string_view token) const noexcept;
  // The inverse; empty for an unused id. Lives as long as the tokenizer.
  std::string_view token_text(std::int32_t id) const noexcept;
  bool is_special(std::int32_t id) const noexcept;
  // The first special token that the template puts in front of a single sequence, if any.
  std::optional<std::int32_t> begin_token() const noexcept;

 private:
  friend class StreamDecoder;
  struct COLIBRI_HIDDEN Parts;
  COLIBRI_HIDDEN explicit Tokenizer(std::unique_ptr<const Parts> parts);
  COLIBRI_HIDDEN bool is_left_out(std::int32_t id, bool skip_special_tokens) const noexcept;

  std::unique_ptr<const Parts> parts_;
};

// Decodes ids as they are generated. The pieces are whole UTF-8 characters, and all pieces
// together equal Tokenizer::decode of all ids: text that a later token could still change
// (an unfinished character, a run of byte-fallback tokens) is held back.
// One decoder serves one sequence; it is not thread-safe.
class COLIBRI_API StreamDecoder {
 public:
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  // The text that became final with this id; often empty.
  std::string push(std::int32_t id);
  // The rest, at the end of the sequence. The decoder must not be used after it.
  std::string flush();

 private:
  struct COLIBRI_HIDDEN State;
  std::unique_ptr<State> state_;
};

}  // namespace colibri
