// colibri_thread_allowance_*: oneTBB's limit on threads, for hosts that do not use oneTBB themselves. The
// library never sets it by itself.
#include <oneapi/tbb/global_control.h>

#include <string>

#include "runtime/c_api/handles.hpp"

using namespace colibri;
using namespace colibri::c_api;

struct colibri_thread_allowance {
  static constexpr std::uint64_t kType = kAllowanceType;
  explicit colibri_thread_allowance(std::uint32_t threads)
      : control(tbb::global_control::max_allowed_parallelism, threads) {}
  HandleHead head{kType};
  tbb::global_control control;
};

namespace {

constexpr std::uint32_t kMaximumThreads = 65536;

}  // namespace

colibri_code colibri_thread_allowance_create(uint32_t threads, colibri_thread_allowance** allowance,
                                             colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_pointer(allowance, alignof(colibri_thread_allowance*), "allowance"));
    *allowance = nullptr;
    if (threads == 0 || threads > kMaximumThreads) {
      return Status(ErrorCode::invalid_input, "a number of threads out of range: " + std::to_string(threads) +
                                                  "; expected 1 to " + std::to_string(kMaximumThreads));
    }
    *allowance = new colibri_thread_allowance(threads);
    return {};
  });
}

colibri_code colibri_thread_allowance_destroy(colibri_thread_allowance* allowance, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    if (allowance == nullptr) return {};
    COLIBRI_C_RETURN_IF_ERROR(check_handle(allowance, "allowance"));
    delete allowance;
    return {};
  });
}
