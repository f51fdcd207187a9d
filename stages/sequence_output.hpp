// What a sequence has produced, when it is finished, and the outcome that then goes to
// `write`. The rules of finishing are here; where logits come from is not.
#pragma once

#include <colibri/messages.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "io/container/model_spec.hpp"

namespace colibri {

class Tokenizer;

// A result that says whose it is, with nothing produced yet.
RequestResult empty_result(const Request& request, std::uint32_t prompt_tokens, const Tokenizer* tokenizer);
std::unique_ptr<Outcome> error_outcome(const Request& request, std::uint32_t prompt_tokens,
                                       const Tokenizer* tokenizer, Status error);
// Ends a cancelled sequence, which is in no step, with what it has produced so far.
std::unique_ptr<Outcome> cancelled_outcome(Sequence& sequence, const Tokenizer* tokenizer);
Status cancelled_request();  // what such an answer says
// The message that hands an outcome over; the receiver owns it.
Message outcome_message(std::unique_ptr<Outcome> outcome);

class SequenceOutput {
 public:
  // `tokenizer` is null when results have no text. Both outlive this.
  SequenceOutput(const ModelSpec& spec, const Tokenizer* tokenizer) : spec_(spec), tokenizer_(tokenizer) {}

  struct Accepted {
    std::string piece;      // text that became final
    bool finished = false;  // by a stop token, a stop string or max_tokens
  };
  // Appends a generated token. A stop token belongs to the tokens, not to the text; a stop string and what
  // follows it are cut from the text.
  Accepted accept(Sequence& sequence, TokenLogprob&& drawn) const;

  // Ends the sequence with what its result holds.
  std::unique_ptr<Outcome> complete(Sequence& sequence) const;
  // Ends the sequence with an error; what it produced is dropped.
  std::unique_ptr<Outcome> fail(Sequence& sequence, Status error) const;

 private:
  void begin(Sequence& sequence) const;
  bool is_stop_token(const Sequence& sequence, std::int32_t token) const noexcept;
  // Adds decoded text to the result; true when a stop string was found.
  static bool add_text(Sequence& sequence, const std::string& decoded, std::string& piece);
  // The text has ended: lets go of what decoder and matcher held back.
  static bool flush_text(Sequence& sequence, std::string& piece);

  const ModelSpec& spec_;
  const Tokenizer* tokenizer_;
};

}  // namespace colibri
