#include "io/text/result_writer.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "io/text/json_output.hpp"
#include "io/text/utf8.hpp"

namespace colibri {
namespace {

std::string_view finish_reason_name(const RequestResult& result) {
  if (!result.error.is_ok()) return "error";
  switch (result.finish_reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::error: return "error";
  }
  return "error";
}

template <class List, class Append>
void append_list(std::string& out, const List& list, Append append) {
  out += '[';
  bool first = true;
  for (const auto& item : list) {
    if (!std::exchange(first, false)) out += ',';
    append(item);
  }
  out += ']';
}

void append_numbers(std::string& out, const auto& numbers) {
  append_list(out, numbers, [&](auto number) { append_json_number(out, number); });
}

void append_text(std::string& out, const RequestResult& result) {
  if (result.has_text) {
    append_json_string(out, result.text);
  } else {
    out += "null";
  }
}

void append_error(std::string& out, const Status& error) {
  out += "{\"code\":";
  append_json_string(out, error_code_name(error.code()));
  out += ",\"message\":";
  append_json_string(out, error.to_string());
  out += '}';
}

// The HTTP status that a server would have answered with.
int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::ok: return 200;
    case ErrorCode::invalid_input:
    case ErrorCode::not_found:
    case ErrorCode::unsupported:
    case ErrorCode::capacity: return 400;
    case ErrorCode::cancelled: return 503;
    case ErrorCode::timeout: return 504;
    case ErrorCode::corrupt:
    case ErrorCode::io:
    case ErrorCode::out_of_memory:
    case ErrorCode::internal:
    case ErrorCode::forked: return 500;
  }
  return 500;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

void ResultWriter::append(const RequestResult& result, std::string& out) const {
  if (result.openai) {
    append_openai(result, out);
  } else {
    append_own(result, out);
  }
  out += '\n';
}

void ResultWriter::append_own(const RequestResult& result, std::string& out) const {
  out += "{\"id\":";
  if (result.id.empty()) {
    out += "null";
  } else {
    append_json_string(out, result.id);
  }
  out += ",\"index\":";
  append_json_number(out, result.index);
  out += ",\"text\":";
  append_text(out, result);
  out += ",\"tokens\":";
  append_numbers(out, result.tokens);
  out += ",\"prompt_tokens\":";
  append_json_number(out, result.prompt_tokens);
  out += ",\"completion_tokens\":";
  append_json_number(out, result.tokens.size());
  out += ",\"finish_reason\":";
  append_json_string(out, finish_reason_name(result));
  if (!result.error.is_ok()) {
    out += ",\"error\":";
    append_error(out, result.error);
  }
  if (result.logprobs_given) {
    out += ",\"logprobs\":";
    append_list(out, result.logprobs, [&](const TokenLogprob& step) {
      out += "{\"token\":";
      append_json_number(out, step.token);
      out += ",\"logprob\":";
      append_json_number(out, step.logprob);
      out += ",\"top\":";
      append_list(out, step.top, [&](const auto& candidate) {
        out += '[';
        append_json_number(out, candidate.first);
        out += ',';
        append_json_number(out, candidate.second);
        out += ']';
      });
      out += '}';
    });
  }
  if (result.task == Task::score && result.error.is_ok()) {
    out += ",\"prompt_logprobs\":";
    append_numbers(out, result.prompt_logprobs);
  }
  if (result.task == Task::embed && result.error.is_ok()) {
    out += ",\"embedding\":";
    append_numbers(out, result.embedding);
  }
  out += '}';
}

void ResultWriter::append_openai(const RequestResult& result, std::string& out) const {
  const std::string index = std::to_string(result.index);
  const bool failed = !result.error.is_ok();
  out += "{\"id\":\"batch_req_" + index + "\",\"custom_id\":";
  if (result.id.empty()) {
    out += "null";
  } else {
    append_json_string(out, result.id);
  }
  out += ",\"response\":{\"status_code\":";
  append_json_number(out, http_status(result.error.code()));
  out += ",\"request_id\":\"req_" + index + "\",\"body\":";
  if (failed) {
    const int status = http_status(result.error.code());
    out += "{\"error\":{\"message\":";
    append_json_string(out, result.error.to_string());
    out += ",\"type\":";
    append_json_string(out, status == 400 ? "invalid_request_error" : "server_error");
    out += ",\"param\":null,\"code\":";
    append_json_string(out, error_code_name(result.error.code()));
    out += "}}";
  } else {
    append_openai_body(result, out);
  }
  out += "},\"error\":";
  if (failed) {
    append_error(out, result.error);
  } else {
    out += "null";
  }
  out += '}';
}

void ResultWriter::append_openai_body(const RequestResult& result, std::string& out) const {
  out += "{\"id\":\"cmpl-" + std::to_string(result.index) +
         "\",\"object\":\"text_completion\",\"created\":0,\"model\":";
  append_json_string(out, result.model_name);
  out += ",\"choices\":[{\"index\":0,\"text\":";
  append_text(out, result);
  out += ",\"finish_reason\":";
  append_json_string(out, finish_reason_name(result));
  out += ",\"logprobs\":";
  if (result.logprobs_given) {
    append_openai_logprobs(result, out);
  } else {
    out += "null";
  }
  out += "}],\"usage\":{\"prompt_tokens\":";
  append_json_number(out, result.prompt_tokens);
  out += ",\"completion_tokens\":";
  append_json_number(out, result.tokens.size());
  out += ",\"total_tokens\":";
  append_json_number(out, result.prompt_tokens + result.tokens.size());
  out += "}}";
}

// Four lists side by side, as the completions API has them. Offsets count the characters of
// the tokens written so far.
void ResultWriter::append_openai_logprobs(const RequestResult& result, std::string& out) const {
  out += "{\"tokens\":";
  append_list(out, result.logprobs,
              [&](const TokenLogprob& step) { append_json_string(out, token_name(step.token)); });
  out += ",\"token_logprobs\":";
  append_list(out, result.logprobs, [&](const TokenLogprob& step) { append_json_number(out, step.logprob); });
  out += ",\"top_logprobs\":";
  append_list(out, result.logprobs, [&](const TokenLogprob& step) {
    std::set<std::string> names;  // two tokens may read the same; keys must differ
    out += '{';
    for (const auto& [token, logprob] : step.top) {
      std::string name = token_name(token);
      if (!names.insert(name).second) names.insert(name = "token_id:" + std::to_string(token));
      if (names.size() > 1) out += ',';
      append_json_string(out, name);
      out += ':';
      append_json_number(out, logprob);
    }
    out += '}';
  });
  out += ",\"text_offset\":";
  std::size_t offset = 0;
  append_list(out, result.logprobs, [&](const TokenLogprob& step) {
    append_json_number(out, offset);
    offset += token_text_ ? count_characters(token_text_(step.token)) : 0;
  });
  out += '}';
}

// A token that is not whole characters has no text of its own.
std::string ResultWriter::token_name(std::int32_t token) const {
  std::string name = token_text_ ? token_text_(token) : std::string();
  if (token_text_ && !first_invalid_utf8(name) && name.find(kReplacementCharacter) == std::string::npos)
    return name;
  return "token_id:" + std::to_string(token);
}

}  // namespace colibri
