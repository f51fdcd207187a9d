// What a plan refuses: the first as its error, each with its place where problems are collected.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/memory/memory_plan.hpp"

namespace colibri {

class PlanRefusals {
 public:
  // `problems` may be null; else it outlives this.
  explicit PlanRefusals(PipelineProblems* problems) : problems_(problems) {}

  // A pool that was set by hand. The needed number is exact, so that it can be copied into a file.
  void too_small(std::string_view pool, const SizeSetting& setting, std::uint64_t given,
                 std::uint64_t needed);
  void does_not_fit(const MemoryPlan& plan);

  const Status& first() const noexcept { return first_; }

 private:
  PipelineProblems* problems_;
  Status first_;
};

}  // namespace colibri
