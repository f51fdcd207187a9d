// sample: final norm, output head, and what each request asked for: tokens, scores or embeddings.
#pragma once

#include <colibri/registry.hpp>
#include <cstdint>
#include <memory>

namespace colibri {

extern const StageInfo kSampleInfo;
std::unique_ptr<Stage> create_sample();
std::uint64_t sample_memory_bytes(const PlanInputs& inputs);
// Rows that a step may have when its requests are to be answered after it (Step::answered_later); 0: none
// may.
std::uint32_t deferrable_rows(const PlanInputs& inputs) noexcept;

}  // namespace colibri
