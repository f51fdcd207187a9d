// How many tokens the prompts of a request file have, about: known before the job starts, so that its steps
// can be made as large as pays.
#pragma once

#include <cstdint>
#include <string>

#include "io/status.hpp"
#include "io/text/request_parser.hpp"
#include "io/text/request_scan.hpp"

namespace colibri {

struct PromptEstimate {
  std::uint64_t tokens = 0;   // of all prompts; a tenth is added to what was not looked at
  std::uint64_t longest = 0;  // no prompt has more
};

// The first `sample_bytes` of the file are tokenized, the rest of what the scan has seen is taken to be like
// them. Lines that will be answered with an error count nothing.
Result<PromptEstimate> estimate_prompts(const std::string& path, const InputScan& scan, Task task,
                                        const RequestDefaults& defaults, const Tokenizer* tokenizer,
                                        std::uint64_t sample_bytes = 256 * 1024);

}  // namespace colibri
