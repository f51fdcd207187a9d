// Which requests can run at all, and how much room each can come to need.
//
// Checked once, on arrival: what passes here always finishes, since a sequence starts only
// when everything that it can need is promised to it.
#pragma once

#include <colibri/services.hpp>
#include <cstdint>

namespace colibri {

// Positions that a sequence can come to hold.
inline std::uint32_t final_size(const Sequence& sequence) noexcept {
  return sequence.prompt_size + (sequence.request.task == Task::generate ? sequence.request.max_tokens : 0);
}

// Whether the request can ever run; the error says what to change. A max_tokens that was not asked for is
// shortened to what the context leaves.
Status check_request(const Services& services, Sequence& sequence);

// Pages that a step or the sequence takes for its keys and values, at most.
std::uint32_t kv_pages_needed(const Services& services, const Sequence& sequence) noexcept;

// True when the answer is known without a step: nothing to generate, or no token that could be scored.
bool needs_no_step(const Sequence& sequence) noexcept;

}  // namespace colibri
