#include "runtime/c_api/boundary.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "io/text/utf8.hpp"

namespace colibri::c_api {
namespace {

// What the library remembers beside its handles: a child that fork made has no handle to ask.
constinit std::atomic<pid_t> process_with_models{0};

// The callback that a thread is in.
constinit thread_local InCallback::Kind callback_kind = InCallback::Kind::none;
constinit thread_local const void* callback_call = nullptr;

}  // namespace

void remember_process() noexcept {
  pid_t none = 0;
  process_with_models.compare_exchange_strong(none, ::getpid(), std::memory_order_relaxed);
}

bool in_forked_child() noexcept {
  const pid_t process = process_with_models.load(std::memory_order_relaxed);
  return process != 0 && process != ::getpid();
}

InCallback::InCallback(Kind kind, const void* call) noexcept
    : before_(std::exchange(callback_kind, kind)), call_before_(std::exchange(callback_call, call)) {}
InCallback::~InCallback() {
  callback_kind = before_;
  callback_call = call_before_;
}
InCallback::Kind InCallback::kind() noexcept { return callback_kind; }
const void* InCallback::call() noexcept { return callback_call; }

Status check_may_wait() {
  if (InCallback::kind() == InCallback::Kind::none) return {};
  return {ErrorCode::invalid_input,
          "called from a callback, which the pipeline waits for; hand the work to another thread"};
}

bool can_be_filled(const colibri_error* error) noexcept {
  return error == nullptr || (reinterpret_cast<std::uintptr_t>(error) % alignof(colibri_error) == 0 &&
                              error->struct_size == sizeof(colibri_error));
}

void copy_text(char* to, std::uint64_t size, std::string_view text) noexcept {
  if (size == 0) return;
  std::size_t length = std::min<std::uint64_t>(text.size(), size - 1);
  // Not in the middle of a character: its later bytes are 10xxxxxx.
  if (length < text.size()) {
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) --length;
  }
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

colibri_code tell(colibri_code code, std::string_view message, colibri_error* error) noexcept {
  if (error == nullptr || code == COLIBRI_OK || code == COLIBRI_PENDING) return code;
  error->code = code;
  error->reserved = 0;
  error->offset = COLIBRI_NO_OFFSET;
  copy_text(error->message, sizeof error->message, message);
  error->stage[0] = error->file[0] = '\0';
  return code;
}

colibri_code tell(const Answer& answer, colibri_error* error) noexcept {
  const Status& status = answer.status();
  tell(answer.code(), "", error);
  if (error == nullptr || status.is_ok()) return answer.code();
  // "place: inner place: sentence", put together without memory.
  char* at = error->message;
  std::uint64_t room = sizeof error->message;
  for (const std::string_view part : {status.chain(), status.message()}) {
    copy_text(at, room, part);
    const std::size_t length = std::strlen(at);
    at += length;
    room -= length;
  }
  error->offset = status.offset();
  copy_text(error->stage, sizeof error->stage, status.stage());
  copy_text(error->file, sizeof error->file, status.file());
  return answer.code();
}

Answer too_small(std::string_view name, std::uint64_t needed, std::uint64_t capacity) {
  return Answer::too_small("a buffer is too small: " + std::string(name) + " takes " +
                           std::to_string(capacity) + " elements, " + std::to_string(needed) +
                           " are needed; give a larger one");
}

Status check_pointer(const void* pointer, std::uint64_t alignment, std::string_view name) {
  if (pointer == nullptr) {
    return {ErrorCode::invalid_input, "a pointer is NULL: " + std::string(name) + "; give an object"};
  }
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) {
    return {ErrorCode::invalid_input, "a pointer is not aligned: " + std::string(name) +
                                          "; expected a multiple of " + std::to_string(alignment) + " bytes"};
  }
  return {};
}

Status check_struct_size(std::uint64_t size, std::uint64_t known, std::string_view name) {
  if (size > known) {
    return {ErrorCode::unsupported, "the host was compiled for a newer library: struct_size of " +
                                        std::string(name) + " is " + std::to_string(size) +
                                        ", this version knows " + std::to_string(known) +
                                        "; install the version that the host was compiled with"};
  }
  if (size < known) {
    return {ErrorCode::invalid_input, "struct_size is not set: that of " + std::string(name) + " is " +
                                          std::to_string(size) + ", expected " + std::to_string(known) +
                                          "; set it to sizeof the struct"};
  }
  return {};
}

Status check_reserved(std::uint64_t value, std::string_view name) {
  if (value == 0) return {};
  return {ErrorCode::unsupported, "a field that is kept for later versions is set: " + std::string(name) +
                                      " is " + std::to_string(value) + "; expected 0"};
}

Status check_flag(std::int32_t value, std::string_view name) {
  return check_choice(value, 1, name, "0 or 1");
}

Status check_choice(std::int32_t value, std::int32_t last, std::string_view name, std::string_view names) {
  if (value >= 0 && value <= last) return {};
  return {ErrorCode::invalid_input, "a value out of range: " + std::string(name) + " is " +
                                        std::to_string(value) + "; expected " + std::string(names)};
}

Result<std::string> read_text(const char* text, std::uint64_t limit, std::string_view name) {
  COLIBRI_RETURN_IF_ERROR(check_pointer(text, 1, name));
  const std::size_t length = ::strnlen(text, limit + 1);
  if (length > limit) {
    return Status(ErrorCode::invalid_input, "a text is too long: " + std::string(name) + " has more than " +
                                                std::to_string(limit) + " bytes; shorten it");
  }
  std::string copy(text, length);
  if (first_invalid_utf8(copy)) {
    return Status(ErrorCode::invalid_input, "a text is not UTF-8: " + std::string(name) + "; encode it so");
  }
  return copy;
}

}  // namespace colibri::c_api
