// colibri_call_*: what asynchronous functions return, for blocks and requests alike.
#include <algorithm>
#include <chrono>

#include "runtime/c_api/handles.hpp"

using namespace colibri;
using namespace colibri::c_api;

namespace {

using Clock = std::chrono::steady_clock;

// As far as a clock can be asked; nobody waits longer.
constexpr std::int64_t kLongestWaitMs = std::int64_t{1000} * 3600 * 24 * 365;

}  // namespace

colibri_code colibri_call_poll(const colibri_call* call, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(call, "call"));
    return call->state->poll();
  });
}

colibri_code colibri_call_wait(const colibri_call* call, int64_t timeout_ms, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(call, "call"));
    if (timeout_ms < 0) {
      COLIBRI_C_RETURN_IF_ERROR(call->state->wait());
    } else if (timeout_ms > 0 && call->state->poll().code() == COLIBRI_PENDING) {
      COLIBRI_C_RETURN_IF_ERROR(check_may_wait());
      call->state->wait_until(Clock::now() + std::chrono::milliseconds(std::min(timeout_ms, kLongestWaitMs)));
    }
    return call->state->poll();
  });
}

colibri_code colibri_call_cancel(colibri_call* call, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(call, "call"));
    call->state->cancel();
    return {};
  });
}

colibri_code colibri_call_release(colibri_call* call, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    if (call == nullptr) return {};
    COLIBRI_C_RETURN_IF_ERROR(check_handle(call, "call"));
    // In a callback the answer will not come while it is waited for.
    if (call->state->poll().code() == COLIBRI_PENDING) COLIBRI_C_RETURN_IF_ERROR(check_may_wait());
    call->state->cancel();
    COLIBRI_C_RETURN_IF_ERROR(call->state->wait());
    delete call;
    return {};
  });
}
