// The boundary between C callers and the C++ inside: codes, errors, checks of what callers pass.
//
// Every function of colibri.h runs in guarded(), so no exception leaves the library, every
// failure has a code and a sentence, and a forked child is told before anything is touched.
#pragma once

#include <colibri/colibri.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "io/status.hpp"

namespace colibri::c_api {

// What a function answers: a Status, or one of the codes that only C callers have.
class Answer {
 public:
  Answer() noexcept = default;    // COLIBRI_OK
  Answer(Status status) noexcept  // NOLINT(google-explicit-constructor)
      : code_(static_cast<colibri_code>(status.code())), status_(std::move(status)) {}
  static Answer pending() noexcept { return {COLIBRI_PENDING, {}}; }
  static Answer busy(std::string message) {
    return {COLIBRI_ERROR_BUSY, Status(ErrorCode::invalid_input, std::move(message))};
  }
  static Answer too_small(std::string message) {
    return {COLIBRI_ERROR_BUFFER_TOO_SMALL, Status(ErrorCode::capacity, std::move(message))};
  }

  bool is_ok() const noexcept { return code_ == COLIBRI_OK; }
  colibri_code code() const noexcept { return code_; }
  const Status& status() const noexcept { return status_; }

 private:
  Answer(colibri_code code, Status status) noexcept : code_(code), status_(std::move(status)) {}
  colibri_code code_ = COLIBRI_OK;
  Status status_;
};

#define COLIBRI_C_RETURN_IF_ERROR(expression)                                  \
  do {                                                                         \
    if (::colibri::c_api::Answer c_answer = (expression); !c_answer.is_ok()) { \
      return c_answer;                                                         \
    }                                                                          \
  } while (false)

// Writes the answer to `error` (may be null), and returns its code. Allocates nothing.
colibri_code tell(const Answer& answer, colibri_error* error) noexcept;
colibri_code tell(colibri_code code, std::string_view message, colibri_error* error) noexcept;

// invalid_input when an error that is not null cannot be filled.
bool can_be_filled(const colibri_error* error) noexcept;

// Models have threads of the process that made them. Remembers the first process that made one.
void remember_process() noexcept;
bool in_forked_child() noexcept;
inline constexpr std::string_view kForkedSentence =
    "this process was made by fork after a model was opened in its parent, and the threads of the library "
    "are "
    "there; open models after the fork";

// Marks this thread as one in a function of the host, as long as it lives: there it must not be made to wait.
class InCallback {
 public:
  enum class Kind : std::uint8_t { none, answer, log };
  explicit InCallback(Kind kind, const void* call = nullptr) noexcept;
  ~InCallback();
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;
  static Kind kind() noexcept;
  static const void* call() noexcept;  // whose callback it is

 private:
  const Kind before_;
  const void* const call_before_;
};
// invalid_input in a callback, for functions that wait for the pipeline.
Status check_may_wait();

inline constexpr std::string_view kLogSentence =
    "called from the log function, which the library waits for; note the line and call later";

template <class Work>
colibri_code contain(colibri_error* error, Work&& work) noexcept {
  try {
    return tell(Answer(work()), error);
  } catch (const std::bad_alloc&) {
    return tell(Answer(Status::no_memory()), error);
  } catch (const std::exception& thrown) {
    return tell(COLIBRI_ERROR_INTERNAL, thrown.what(), error);
  } catch (...) {
    return tell(COLIBRI_ERROR_INTERNAL, "an exception that is no std::exception", error);
  }
}

template <class Work>
colibri_code guarded(colibri_error* error, Work&& work) noexcept {
  const bool fills = can_be_filled(error);
  if (in_forked_child()) return tell(COLIBRI_ERROR_FORKED, kForkedSentence, fills ? error : nullptr);
  if (!fills) return COLIBRI_ERROR_INVALID_INPUT;
  if (InCallback::kind() == InCallback::Kind::log)
    return tell(COLIBRI_ERROR_INVALID_INPUT, kLogSentence, error);
  return contain(error, std::forward<Work>(work));
}

// Checks of pointers that callers pass; `name` is the argument's.
Status check_pointer(const void* pointer, std::uint64_t alignment, std::string_view name);
Status check_struct_size(std::uint64_t size, std::uint64_t known, std::string_view name);
// A struct that begins with struct_size, and is as large as this library knows it.
template <class Struct>
Status check_struct(const Struct* value, std::string_view name) {
  COLIBRI_RETURN_IF_ERROR(check_pointer(value, alignof(Struct), name));
  return check_struct_size(value->struct_size, sizeof(Struct), name);
}
// The common part of the ..._init functions: zeros, and the size.
template <class Struct>
Status init_struct(Struct* value, std::uint64_t struct_size, std::string_view name) {
  COLIBRI_RETURN_IF_ERROR(check_pointer(value, alignof(Struct), name));
  COLIBRI_RETURN_IF_ERROR(check_struct_size(struct_size, sizeof(Struct), name));
  *value = Struct{};
  value->struct_size = struct_size;
  return {};
}
// Kept for later versions: 0.
Status check_reserved(std::uint64_t value, std::string_view name);
// 0 or 1.
Status check_flag(std::int32_t value, std::string_view name);
// One of 0 to `last`; `names` for the message.
Status check_choice(std::int32_t value, std::int32_t last, std::string_view name, std::string_view names);
// A string that is UTF-8, of at most `limit` bytes, and not null.
Result<std::string> read_text(const char* text, std::uint64_t limit, std::string_view name);

// Copies as many whole characters as fit, and a 0. `size` may be 0.
void copy_text(char* to, std::uint64_t size, std::string_view text) noexcept;

Answer too_small(std::string_view name, std::uint64_t needed, std::uint64_t capacity);
// As many elements as fit into a caller's buffer; buffer_too_small when that is not all.
template <class Element>
Answer copy_elements(std::span<const Element> from, Element* to, std::uint64_t capacity,
                     std::string_view name) {
  const std::uint64_t fit = std::min<std::uint64_t>(from.size(), capacity);
  std::copy_n(from.begin(), fit, to);
  return fit == from.size() ? Answer() : too_small(name, from.size(), capacity);
}

// Longest path or name that is taken.
inline constexpr std::uint64_t kMaximumPathBytes = 4096;

}  // namespace colibri::c_api
