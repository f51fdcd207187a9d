#include "io/text/prompt_estimate.hpp"

#include <algorithm>

#include "io/text/jsonl_reader.hpp"

namespace colibri {
namespace {

constexpr double kMargin = 1.1;  // for what was not looked at

}  // namespace

Result<PromptEstimate> estimate_prompts(const std::string& path, Task task, const RequestDefaults& defaults,
                                        const Tokenizer* tokenizer, std::uint64_t sample_bytes) {
  COLIBRI_ASSIGN_OR_RETURN(JsonlReader reader, JsonlReader::open(path));
  PromptEstimate estimate;
  JsonlLine line;
  std::uint64_t sampled = 0, rest = 0, longest_line = 0;
  for (;;) {
    COLIBRI_ASSIGN_OR_RETURN(const JsonlReader::Event event, reader.next(line));
    if (event != JsonlReader::Event::line) break;
    ++estimate.requests;
    if (line.offset >= sample_bytes) {
      // A token of text is a byte at least, and one of a list of ids two.
      longest_line = std::max<std::uint64_t>(longest_line, line.text.size());
      rest += line.bytes;
      continue;
    }
    sampled += line.bytes;
    const Request request = line.too_long
                                ? too_long_request(line.index, task)
                                : parse_request_line(line.text, line.index, task, defaults, tokenizer);
    if (!request.error) continue;
    estimate.tokens += request.tokens.size();
    estimate.longest = std::max<std::uint64_t>(estimate.longest, request.tokens.size());
  }
  estimate.longest = std::max(estimate.longest, longest_line);
  if (sampled > 0) {
    const double share = static_cast<double>(rest) / static_cast<double>(sampled);
    estimate.tokens += static_cast<std::uint64_t>(kMargin * share * static_cast<double>(estimate.tokens));
  }
  return estimate;
}

}  // namespace colibri
