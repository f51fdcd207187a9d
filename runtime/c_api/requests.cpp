#include "runtime/c_api/requests.hpp"

#include <utility>

#include "io/text/request_fields.hpp"
#include "io/text/tokenizer.hpp"

namespace colibri::c_api {
namespace {

constexpr std::uint64_t kMaximumPromptBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kMaximumCount = 0x7fffffff;

Status out_of_range(const char* field, const std::string& found, const char* expected) {
  return {ErrorCode::invalid_input,
          "a value out of range: request." + std::string(field) + " is " + found + "; expected " + expected};
}

Result<std::vector<std::int32_t>> read_prompt(const Engine& engine, const colibri_request& request) {
  if ((request.text != nullptr) == (request.num_tokens > 0)) {
    return Status(
        ErrorCode::invalid_input,
        "a request has text or tokens: request.text and request.num_tokens are both set, or neither; "
        "give one");
  }
  const std::uint32_t vocabulary = engine.spec().vocab_size;
  std::vector<std::int32_t> tokens;
  if (request.text != nullptr) {
    COLIBRI_ASSIGN_OR_RETURN(const std::string text,
                             read_text(request.text, kMaximumPromptBytes, "request.text"));
    if (engine.tokenizer() == nullptr) {
      return Status(ErrorCode::unsupported,
                    "request.text needs a tokenizer, and this model has none; give token ids");
    }
    COLIBRI_ASSIGN_OR_RETURN(tokens, engine.tokenizer()->encode(text, true));
    if (tokens.empty()) {
      return Status(ErrorCode::invalid_input, "request.text has no tokens; give at least one character");
    }
  } else {
    COLIBRI_RETURN_IF_ERROR(check_pointer(request.tokens, alignof(std::int32_t), "request.tokens"));
    if (request.num_tokens > engine.spec().max_seq_len) {
      return Status(ErrorCode::invalid_input, "more tokens than the model's context: request.num_tokens is " +
                                                  std::to_string(request.num_tokens) + ", max_seq_len " +
                                                  std::to_string(engine.spec().max_seq_len) +
                                                  "; shorten the prompt");
    }
    tokens.assign(request.tokens, request.tokens + request.num_tokens);
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && static_cast<std::uint32_t>(tokens[i]) < vocabulary) continue;
    return Status(ErrorCode::invalid_input, "a token that the model does not have: number " +
                                                std::to_string(i) + " is " + std::to_string(tokens[i]) +
                                                "; expected 0 to " + std::to_string(vocabulary - 1));
  }
  return tokens;
}

Status read_stops(const Engine& engine, const colibri_request& request, std::vector<std::string>& stops) {
  if (request.num_stop == 0) return {};
  if (request.num_stop > kMaxStopStrings) {
    return out_of_range("num_stop", std::to_string(request.num_stop), "at most 16 stop strings");
  }
  if (engine.tokenizer() == nullptr) {
    return {ErrorCode::unsupported, "request.stop needs a tokenizer, and this model has none; give none"};
  }
  COLIBRI_RETURN_IF_ERROR(check_pointer(request.stop, alignof(const char*), "request.stop"));
  for (std::uint64_t i = 0; i < request.num_stop; ++i) {
    const std::string name = "request.stop[" + std::to_string(i) + "]";
    COLIBRI_ASSIGN_OR_RETURN(std::string text, read_text(request.stop[i], kMaxStopBytes, name));
    if (text.empty())
      return {ErrorCode::invalid_input, "a stop text is empty: " + name + "; give a character"};
    stops.push_back(std::move(text));
  }
  return {};
}

Status read_numbers(const colibri_request& from, Request& request) {
  if (from.max_tokens > kMaximumCount)
    return out_of_range("max_tokens", std::to_string(from.max_tokens), "1 to 2147483647, or 0");
  request.max_tokens_given = from.max_tokens > 0;
  if (request.max_tokens_given) request.max_tokens = from.max_tokens;
  if (!(from.temperature >= 0 && from.temperature <= kMaxTemperature))
    return out_of_range("temperature", std::to_string(from.temperature), "0 to 100");
  request.temperature = from.temperature < kGreedyTemperature ? 0.0F : from.temperature;
  if (!(from.top_p > 0 && from.top_p <= 1))
    return out_of_range("top_p", std::to_string(from.top_p), "above 0, at most 1");
  request.top_p = from.top_p;
  if (from.top_k > kMaximumCount) return out_of_range("top_k", std::to_string(from.top_k), "0 to 2147483647");
  request.top_k = from.top_k;
  request.seed = from.seed;
  if (from.logprobs > 1) return out_of_range("logprobs", std::to_string(from.logprobs), "0 or 1");
  request.logprobs_given = from.logprobs == 1;
  COLIBRI_RETURN_IF_ERROR(check_flag(from.ignore_eos, "request.ignore_eos"));
  request.ignore_eos = from.ignore_eos != 0;
  COLIBRI_RETURN_IF_ERROR(
      check_choice(from.pooling, COLIBRI_POOLING_LAST, "request.pooling", "COLIBRI_POOLING_MEAN or _LAST"));
  request.pooling = from.pooling == COLIBRI_POOLING_LAST ? Pooling::last : Pooling::mean;
  COLIBRI_RETURN_IF_ERROR(check_flag(from.normalize, "request.normalize"));
  request.normalize = from.normalize != 0;
  return check_reserved(static_cast<std::uint64_t>(from.reserved), "request.reserved");
}

}  // namespace

Result<Task> read_task(std::int32_t task, std::string_view name) {
  COLIBRI_RETURN_IF_ERROR(
      check_choice(task, COLIBRI_TASK_EMBED, name, "COLIBRI_TASK_GENERATE, _SCORE or _EMBED"));
  return task == COLIBRI_TASK_SCORE ? Task::score : task == COLIBRI_TASK_EMBED ? Task::embed : Task::generate;
}

Result<Request> read_request(const Engine& engine, const colibri_request& from, std::int32_t task) {
  Request request;
  COLIBRI_ASSIGN_OR_RETURN(request.task, read_task(task, "request.task"));
  COLIBRI_RETURN_IF_ERROR(read_numbers(from, request));
  COLIBRI_RETURN_IF_ERROR(read_stops(engine, from, request.stop));
  COLIBRI_ASSIGN_OR_RETURN(request.tokens, read_prompt(engine, from));
  return request;
}

Status check_result(const colibri_result* result) {
  COLIBRI_RETURN_IF_ERROR(check_struct(result, "result"));
  if (result->text_capacity > 0) COLIBRI_RETURN_IF_ERROR(check_pointer(result->text, 1, "result.text"));
  if (result->tokens_capacity > 0)
    COLIBRI_RETURN_IF_ERROR(check_pointer(result->tokens, alignof(std::int32_t), "result.tokens"));
  if (result->logprobs_capacity > 0)
    COLIBRI_RETURN_IF_ERROR(check_pointer(result->logprobs, alignof(float), "result.logprobs"));
  if (result->embedding_capacity > 0)
    COLIBRI_RETURN_IF_ERROR(check_pointer(result->embedding, alignof(float), "result.embedding"));
  return {};
}

Answer fill_result(const RequestResult& from, colibri_result& result) {
  std::vector<float> logprobs = from.prompt_logprobs;
  for (const TokenLogprob& token : from.logprobs) logprobs.push_back(token.logprob);
  result.text_size = from.text.size() + 1;
  result.tokens_size = from.tokens.size();
  result.logprobs_size = logprobs.size();
  result.embedding_size = from.embedding.size();
  result.prompt_tokens = from.prompt_tokens;
  result.finish_reason = static_cast<std::int32_t>(from.finish_reason);
  copy_text(result.text, result.text_capacity, from.text);
  // A host that wants no text gives no room for it.
  Answer first = result.text_capacity == 0 || result.text_size <= result.text_capacity
                     ? Answer()
                     : too_small("result.text", result.text_size, result.text_capacity);
  const auto add = [&first](Answer next) {
    if (first.is_ok()) first = std::move(next);
  };
  if (result.tokens_capacity > 0)
    add(copy_elements<std::int32_t>(from.tokens, result.tokens, result.tokens_capacity, "result.tokens"));
  if (result.logprobs_capacity > 0)
    add(copy_elements<float>(logprobs, result.logprobs, result.logprobs_capacity, "result.logprobs"));
  if (result.embedding_capacity > 0)
    add(copy_elements<float>(from.embedding, result.embedding, result.embedding_capacity,
                             "result.embedding"));
  return first;
}

}  // namespace colibri::c_api
