// Reads one line of a job into a Request. A line never fails as a whole: what is wrong with
// it is put into Request::error, and the line is answered with that.
//
// Own lines:
//   id            string or integer (1 to 512 bytes as text); `custom_id` is the same thing.
//                 Optional: a line without one is called by its line number.
//   prompt        string, or `tokens`, a list of token ids; exactly one of them
// task generate:
//   max_tokens    1 .. 2^31-1, default 128 (shortened to what the context allows unless given)
//   temperature   0 .. 100, default 0 = greedy; below 1e-5 counts as 0
//   top_p         above 0, at most 1, default 1      top_k   0 .. 2^31-1, default 0 = all
//   seed          any 64-bit integer, default: a hash of the job's seed and the id
//   stop          string or list of strings: at most 16, of 1 to 1024 bytes
//   ignore_eos    boolean                            logprobs  0 .. 100, the n best per token
// task embed:
//   pooling       "mean" or "last"                   normalize boolean
// One file may serve several tasks: fields of the other tasks are checked like any other and
// have no effect. null for an optional field is the same as leaving it out. A field that is
// unknown, stands twice, has another type or is out of range is an error.
//
// OpenAI batch lines have `custom_id`, `method`, `url` and `body`, the body of a completion:
// model, prompt (text, token ids, or a list with one of them), max_tokens (default 16),
// temperature (default 1), top_p, seed, stop, logprobs; `user` is accepted because it has no
// effect by definition; n, best_of, echo, stream, suffix, logit_bias and the penalties are
// accepted with the values that ask for nothing. top_k and ignore_eos are taken as well.
#pragma once

#include <cstdint>
#include <string_view>

#include "io/status.hpp"
#include "io/text/jsonl_reader.hpp"
#include "io/text/request.hpp"

namespace colibri {

class Tokenizer;

inline constexpr std::size_t kMaxIdBytes = 512;
inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopBytes = 1024;
inline constexpr std::uint32_t kMaxLogprobs = 100;
inline constexpr float kMaxTemperature = 100.0F;
inline constexpr float kGreedyTemperature = 1e-5F;  // below it logits divided by it overflow: greedy

// What holds for lines that do not say otherwise.
struct RequestDefaults {
  std::uint32_t vocab_size = 0;  // of the model: token ids are below it
  std::uint64_t job_seed = 0;
  std::uint32_t max_tokens = 128;
  float temperature = 0.0F;
  std::uint32_t openai_max_tokens = 16;
  float openai_temperature = 1.0F;
  Pooling pooling = Pooling::mean;
  bool normalize = false;
};

// `tokenizer` may be null: then only token ids are accepted.
Request parse_request_line(std::string_view line, std::uint64_t index, Task task,
                           const RequestDefaults& defaults, const Tokenizer* tokenizer);

// The answer to a line that is longer than the reader's limit.
Request too_long_request(std::uint64_t index, Task task);

// The id that parse_request_line gives this line; empty when it has none that can be read.
std::string request_line_id(std::string_view line, std::uint64_t index);

// The seed of a request that has none of its own.
std::uint64_t default_seed(std::uint64_t job_seed, std::string_view id);

std::string_view task_name(Task task) noexcept;

}  // namespace colibri
