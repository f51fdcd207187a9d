// Request and RequestResult: one line of a job, and its answer.
//
// Plain data between the text side (JSONL, tokenizer) and the pipeline.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/status.hpp"

namespace colibri {

enum class Task : std::uint8_t { generate, score, embed };
enum class Pooling : std::uint8_t { mean, last };

struct Request {
  std::uint64_t index = 0;  // line number in the input, from 0
  std::string id;
  bool openai = false;      // came as an OpenAI batch line; the answer takes that shape
  std::string model_name;   // OpenAI: body.model, echoed
  Task task = Task::generate;
  std::vector<std::int32_t> tokens;  // prompt ids
  std::uint32_t max_tokens = 128;
  bool max_tokens_given = false;     // false: shortened to what the context allows
  float temperature = 0.0F;          // 0: greedy
  float top_p = 1.0F;
  std::uint32_t top_k = 0;           // 0: all
  std::uint64_t seed = 0;            // unset seeds are already filled in: hash(job seed, id)
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::uint32_t logprobs = 0;        // n best per generated token
  bool logprobs_given = false;
  Pooling pooling = Pooling::mean;
  bool normalize = false;
  bool stream = false;               // deliver pieces as they are made
  // True: answered with ErrorCode::cancelled when the step that it is in ends, or before its first one. Null:
  // never. May become true at any time, on any thread.
  std::shared_ptr<const std::atomic<bool>> cancelled;
  bool is_cancelled() const noexcept {
    return cancelled != nullptr && cancelled->load(std::memory_order_acquire);
  }
  Status error;                      // not ok: the line is answered with this, nothing runs
};

enum class FinishReason : std::uint8_t { stop, length, error };

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0;  // natural log, before temperature
  std::vector<std::pair<std::int32_t, float>> top;
};

struct RequestResult {
  std::uint64_t index = 0;
  std::string id;
  bool openai = false;
  std::string model_name;
  Task task = Task::generate;
  bool has_text = false;  // false without a tokenizer: text is null
  std::string text;       // stop text excluded
  std::vector<std::int32_t> tokens;  // generated ids
  std::uint32_t prompt_tokens = 0;
  FinishReason finish_reason = FinishReason::stop;
  Status error;
  bool logprobs_given = false;
  std::vector<TokenLogprob> logprobs;       // per generated token
  std::vector<float> prompt_logprobs;       // score: of each prompt token after the first
  std::vector<float> embedding;             // embed
};

}  // namespace colibri
