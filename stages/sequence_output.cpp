// The rules of finishing: stop tokens, stop strings across token borders, max_tokens.
#include "stages/sequence_output.hpp"

#include <algorithm>
#include <utility>

#include "io/text/stop_matcher.hpp"
#include "io/text/tokenizer.hpp"

namespace colibri {

RequestResult empty_result(const Request& request, std::uint32_t prompt_tokens, const Tokenizer* tokenizer) {
  RequestResult result;
  result.index = request.index;
  result.id = request.id;
  result.openai = request.openai;
  result.model_name = request.model_name;
  result.task = request.task;
  result.has_text = request.task == Task::generate && tokenizer != nullptr;
  result.prompt_tokens = prompt_tokens;
  result.logprobs_given = request.logprobs_given;
  return result;
}

std::unique_ptr<Outcome> error_outcome(const Request& request, std::uint32_t prompt_tokens,
                                       const Tokenizer* tokenizer, Status error) {
  auto outcome = std::make_unique<Outcome>();
  outcome->result = empty_result(request, prompt_tokens, tokenizer);
  outcome->result.finish_reason = FinishReason::error;
  outcome->result.error = std::move(error);
  return outcome;
}

std::unique_ptr<Outcome> cancelled_outcome(Sequence& sequence, const Tokenizer* tokenizer) {
  sequence.finished = true;
  sequence.error = cancelled_request();
  auto outcome = error_outcome(sequence.request, sequence.prompt_size, tokenizer, sequence.error);
  outcome->result.tokens = std::move(sequence.result.tokens);
  outcome->result.text = std::move(sequence.result.text);
  outcome->result.logprobs = std::move(sequence.result.logprobs);
  outcome->result.prompt_logprobs = std::move(sequence.result.prompt_logprobs);
  return outcome;
}

Status cancelled_request() { return {ErrorCode::cancelled, "the request was cancelled"}; }

Message outcome_message(std::unique_ptr<Outcome> outcome) {
  return {.type = MessageType::outcome, .object = outcome.release()};
}

SequenceOutput::Accepted SequenceOutput::accept(Sequence& sequence, TokenLogprob&& drawn) const {
  const Request& request = sequence.request;
  RequestResult& result = sequence.result;
  const std::int32_t token = drawn.token;
  if (result.tokens.empty()) begin(sequence);
  sequence.tokens.push_back(token);
  result.tokens.push_back(token);
  if (request.logprobs_given) result.logprobs.push_back(std::move(drawn));

  Accepted accepted;
  bool stopped = false;
  if (is_stop_token(sequence, token)) {
    flush_text(sequence, accepted.piece);
    stopped = true;
  } else {
    if (sequence.decoder) stopped = add_text(sequence, sequence.decoder->push(token), accepted.piece);
    if (!stopped && result.tokens.size() < request.max_tokens) return accepted;
    // The last token may complete a character, and that a stop string.
    if (!stopped) stopped = flush_text(sequence, accepted.piece);
  }
  result.finish_reason = stopped ? FinishReason::stop : FinishReason::length;
  accepted.finished = true;
  return accepted;
}

std::unique_ptr<Outcome> SequenceOutput::complete(Sequence& sequence) const {
  sequence.finished = true;
  RequestResult& result = sequence.result;
  // begin() has described a generated result; scores and embeddings are described here.
  if (sequence.request.task != Task::generate) {
    RequestResult described = empty_result(sequence.request, sequence.prompt_size, tokenizer_);
    described.prompt_logprobs = std::move(result.prompt_logprobs);
    described.embedding = std::move(result.embedding);
    result = std::move(described);
  }
  auto outcome = std::make_unique<Outcome>();
  outcome->result = std::move(result);
  return outcome;
}

std::unique_ptr<Outcome> SequenceOutput::fail(Sequence& sequence, Status error) const {
  sequence.finished = true;
  sequence.error = error;
  return error_outcome(sequence.request, sequence.prompt_size, tokenizer_, std::move(error));
}

void SequenceOutput::begin(Sequence& sequence) const {
  const Request& request = sequence.request;
  sequence.result = empty_result(request, sequence.prompt_size, tokenizer_);
  sequence.result.tokens.reserve(request.max_tokens);
  if (request.logprobs_given) sequence.result.logprobs.reserve(request.max_tokens);
  if (tokenizer_ == nullptr) return;
  // The decoder shares ownership by type; the tokenizer outlives all sequences.
  const std::shared_ptr<const Tokenizer> tokenizer(std::shared_ptr<const void>(), tokenizer_);
  sequence.decoder = std::make_shared<StreamDecoder>(tokenizer, /*skip_special_tokens=*/true);
  if (!request.stop.empty()) sequence.stop_matcher = std::make_shared<StopMatcher>(request.stop);
}

bool SequenceOutput::is_stop_token(const Sequence& sequence, std::int32_t token) const noexcept {
  return !sequence.request.ignore_eos &&
         std::find(spec_.stop_tokens.begin(), spec_.stop_tokens.end(), token) != spec_.stop_tokens.end();
}

bool SequenceOutput::add_text(Sequence& sequence, const std::string& decoded, std::string& piece) {
  bool stopped = false;
  const std::size_t begin = piece.size();
  if (sequence.stop_matcher) {
    const StopMatcher::Output output = sequence.stop_matcher->push(decoded);
    piece += output.emit_text;
    stopped = output.stopped;
  } else {
    piece += decoded;
  }
  sequence.result.text.append(piece, begin);
  return stopped;
}

bool SequenceOutput::flush_text(Sequence& sequence, std::string& piece) {
  if (!sequence.decoder) return false;
  if (add_text(sequence, sequence.decoder->flush(), piece)) return true;
  if (!sequence.stop_matcher) return false;
  const StopMatcher::Output output = sequence.stop_matcher->flush();
  piece += output.emit_text;
  sequence.result.text += output.emit_text;
  return output.stopped;
}

}  // namespace colibri
