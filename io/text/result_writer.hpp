// Writes a RequestResult as one line of JSON: our own shape, or OpenAI's for lines that came
// in that shape.
//
// Own:    {"id", "index", "text", "tokens", "prompt_tokens", "completion_tokens",
//          "finish_reason", "error": {"code", "message"}, "logprobs": [{"token", "logprob",
//          "top": [[id, logprob], ...]}, ...], "prompt_logprobs": [...], "embedding": [...]}
//         in this order; from "error" on only what there is. id is null when the line had none
//         that could be read, text is null without a tokenizer.
// OpenAI: {"id": "batch_req_<index>", "custom_id", "response": {"status_code", "request_id",
//          "body"}, "error"}. A failed line has both `error` and an error body with a status
//         of 400 (the request's fault) or 500 and above. `created` is always 0: a result
//         depends on nothing but the request.
// Both are always valid JSON: see json_output.hpp. A log-probability of minus infinity or a
// NaN is null.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "io/text/request.hpp"

namespace colibri {

class ResultWriter {
 public:
  // The text of one token, for the log-probabilities of OpenAI lines; may be broken UTF-8.
  using TokenText = std::function<std::string(std::int32_t token)>;
  // Without `token_text` tokens are written as "token_id:<id>".
  explicit ResultWriter(TokenText token_text = {}) : token_text_(std::move(token_text)) {}

  // Appends the line and its newline.
  void append(const RequestResult& result, std::string& out) const;

 private:
  void append_own(const RequestResult& result, std::string& out) const;
  void append_openai(const RequestResult& result, std::string& out) const;
  void append_openai_body(const RequestResult& result, std::string& out) const;
  void append_openai_logprobs(const RequestResult& result, std::string& out) const;
  std::string token_name(std::int32_t token) const;

  TokenText token_text_;
};

}  // namespace colibri
