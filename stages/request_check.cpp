// The checks of a new request: its tokens, the model's context, the KV pool.
#include "stages/request_check.hpp"

#include <string>
#include <utility>

#include "stages/kv_pages.hpp"

namespace colibri {
namespace {

Status invalid(std::string sentence) { return {ErrorCode::invalid_input, std::move(sentence)}; }

Status check_tokens(const Sequence& sequence, std::uint32_t vocab_size) {
  if (sequence.prompt_size == 0) return invalid("the prompt has no tokens; give at least one");
  for (const std::int32_t token : sequence.tokens) {
    if (token >= 0 && static_cast<std::uint32_t>(token) < vocab_size) continue;
    return invalid("a prompt token is outside the vocabulary: " + std::to_string(token) + ", expected 0 to " +
                   std::to_string(vocab_size - 1));
  }
  return {};
}

Status fit_context(Sequence& sequence, std::uint32_t limit) {
  Request& request = sequence.request;
  const std::uint32_t prompt = sequence.prompt_size;
  if (prompt <= limit && (request.task != Task::generate || request.max_tokens <= limit - prompt)) return {};
  const std::string sizes =
      std::to_string(prompt) + " prompt tokens, the model's context has " + std::to_string(limit);
  if (prompt > limit) return invalid("the prompt is too long: " + sizes + "; shorten it");
  const std::uint32_t room = limit - prompt;
  if (room == 0) return invalid("the prompt leaves no room to generate: " + sizes + "; shorten it");
  if (request.max_tokens_given) {
    return invalid("prompt and max_tokens exceed the context: " + sizes + ", max_tokens is " +
                   std::to_string(request.max_tokens) + "; lower it to " + std::to_string(room) + " or less");
  }
  request.max_tokens = room;
  return {};
}

}  // namespace

Status check_request(const Services& services, Sequence& sequence) {
  const Request& request = sequence.request;
  const ModelSpec& spec = *services.plan.spec;
  if (!request.error) return request.error;
  COLIBRI_RETURN_IF_ERROR(check_tokens(sequence, spec.vocab_size));
  if (!request.stop.empty() && request.task == Task::generate && services.tokenizer == nullptr) {
    return invalid("stop strings need a tokenizer and the model has none; use stop tokens or max_tokens");
  }
  COLIBRI_RETURN_IF_ERROR(fit_context(sequence, spec.max_seq_len));
  const std::uint32_t needed = kv_pages_needed(services, sequence);
  if (needed <= services.kv.pages) return {};
  return {ErrorCode::capacity, "the request can never fit the KV pool: it needs " + std::to_string(needed) +
                                   " pages of " + std::to_string(kernels::kKvPagePositions) +
                                   " positions, the pool has " + std::to_string(services.kv.pages) +
                                   "; raise memory.dynamic, shorten the prompt or lower max_tokens"};
}

std::uint32_t kv_pages_needed(const Services& services, const Sequence& sequence) noexcept {
  const std::uint32_t blocks = kv_blocks_for(final_size(sequence));
  if (!is_prompt_only(sequence) || sequence.prompt_size > services.plan.max_rows) return blocks;
  const std::uint32_t runs = StepKvPages::runs_per_page(services.kv);
  return (blocks + runs - 1) / runs;
}

bool needs_no_step(const Sequence& sequence) noexcept {
  switch (sequence.request.task) {
    case Task::generate: return sequence.request.max_tokens == 0;
    case Task::score: return sequence.prompt_size == 1;
    case Task::embed: return false;
  }
  return false;
}

}  // namespace colibri
