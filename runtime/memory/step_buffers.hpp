// The arrays of a Step and of the hint batches, laid over the dynamic pool.
#pragma once

#include <colibri/registry.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stages/memory_cursor.hpp"

namespace colibri {

// Bytes of one step, and of one hint batch.
std::uint64_t step_bytes(const PlanInputs& inputs);
std::uint64_t hint_batch_bytes(const PlanInputs& inputs);

// All steps and hint batches of a pipeline. The Status arrays are objects, so they live here, not in the
// pool.
class StepPool {
 public:
  // memory: steps * step_bytes + batches * hint_batch_bytes, 64-byte aligned; outlives the pool.
  StepPool(const PlanInputs& inputs, std::uint64_t batches, std::span<std::byte> memory);

  std::span<Step> steps() noexcept { return steps_; }
  std::span<HintBatch> hint_batches() noexcept { return batches_; }

 private:
  std::vector<Step> steps_;
  std::vector<HintBatch> batches_;
  std::vector<std::vector<Status>> row_status_;        // [steps][max_rows]
  std::vector<std::vector<Status>> expert_status_;     // [steps * 2][experts]
  std::vector<std::vector<LentRecord>> records_;       // [steps * 2][experts]
  std::vector<std::vector<std::uint32_t>> next_done_;  // [steps * 2][experts + 1]
};

}  // namespace colibri
