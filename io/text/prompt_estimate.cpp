#include "io/text/prompt_estimate.hpp"

#include <algorithm>

#include "io/text/jsonl_reader.hpp"

namespace colibri {
namespace {

constexpr double kMargin = 1.1;  // for what was not looked at

}  // namespace

Result<PromptEstimate> estimate_prompts(const std::string& path, const InputScan& scan, Task task,
                                        const RequestDefaults& defaults, const Tokenizer* tokenizer,
                                        std::uint64_t sample_bytes) {
  COLIBRI_ASSIGN_OR_RETURN(JsonlReader reader, JsonlReader::open(path));
  PromptEstimate estimate;
  JsonlLine line;
  while (reader.bytes_consumed() < sample_bytes) {
    COLIBRI_ASSIGN_OR_RETURN(const JsonlReader::Event event, reader.next(line));
    if (event != JsonlReader::Event::line) return estimate;  // that was all
    const Request request = line.too_long
                                ? too_long_request(line.index, task)
                                : parse_request_line(line.text, line.index, task, defaults, tokenizer);
    if (!request.error) continue;
    estimate.tokens += request.tokens.size();
    estimate.longest = std::max<std::uint64_t>(estimate.longest, request.tokens.size());
  }
  // A token of text is a byte at least, and one of a list of ids two.
  estimate.longest = std::max(estimate.longest, scan.longest_line);
  const std::uint64_t sampled = reader.bytes_consumed();
  const std::uint64_t rest = scan.bytes > sampled ? scan.bytes - sampled : 0;
  const double share = static_cast<double>(rest) / static_cast<double>(sampled);
  estimate.tokens += static_cast<std::uint64_t>(kMargin * share * static_cast<double>(estimate.tokens));
  return estimate;
}

}  // namespace colibri
