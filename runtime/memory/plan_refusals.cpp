#include "runtime/memory/plan_refusals.hpp"

#include <string>

namespace colibri {

void PlanRefusals::too_small(std::string_view pool, const SizeSetting& setting, std::uint64_t given,
                             std::uint64_t needed) {
  const std::string path = "memory." + std::string(pool);
  const std::string what = "is too small: " + format_bytes(given) + " given, " + format_bytes(needed) + " (" +
                           std::to_string(needed) + " bytes) needed; raise it or set it to auto";
  if (first_.is_ok()) first_ = Status(ErrorCode::invalid_input, path + " " + what);
  if (problems_ != nullptr) problems_->add(setting.origin, path, what);
}

void PlanRefusals::does_not_fit(const MemoryPlan& plan) {
  const std::string what =
      "the plan does not fit: " + format_bytes(plan.total_bytes) + " planned, " +
      format_bytes(plan.usable_bytes) +
      " usable (80 % of what is available, 90 % of what the cgroup allows); lower --experts-memory, "
      "--max-rows or memory.dynamic";
  if (first_.is_ok()) first_ = Status(ErrorCode::capacity, what + "\n" + plan.to_table());
  if (problems_ != nullptr) problems_->add({}, "memory", what);
}

}  // namespace colibri
