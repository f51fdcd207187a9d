// Status and Result: how every layer from io upwards reports a failure.
//
// A Status is a code, one sentence, and a chain of places it passed through
// (innermost first). The sentence is written as: static words, then values, then
// what to do. Nothing here prints or throws. Checked arithmetic lives here too,
// because sizes that come from files must never wrap before they are compared.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "kernels/export.hpp"

namespace colibri {

enum class ErrorCode : std::uint8_t {
  ok = 0,
  invalid_input = 1,     // an argument, a request or a file content that breaks its rules
  not_found = 2,         // a file, tensor, stage or name that does not exist
  corrupt = 3,           // a checksum, a magic or a size that contradicts another
  unsupported = 4,       // well-formed, but this version cannot do it
  io = 5,                // the operating system refused or failed a read or write
  out_of_memory = 6,     // a pool, a limit or the system has no room
  capacity = 7,          // a request that can never fit what was configured
  cancelled = 8,         // stopped on request
  timeout = 9,           // a deadline passed
  internal = 10,         // a bug in colibri
  forked = 11,           // called in a child process that fork made, where the engine's threads do not exist
};

// The stable lower-case name of a code ("invalid_input"), as printed in results.
COLIBRI_API std::string_view error_code_name(ErrorCode code) noexcept;

class [[nodiscard]] COLIBRI_API Status {
 public:
  Status() noexcept = default;  // ok
  Status(ErrorCode code, std::string message);

  static Status ok() noexcept { return {}; }
  // out_of_memory, made without memory.
  static Status no_memory() noexcept;

  bool is_ok() const noexcept { return !state_; }
  explicit operator bool() const noexcept { return is_ok(); }
  ErrorCode code() const noexcept { return state_ ? state_->code : ErrorCode::ok; }
  // The sentence without the chain; empty when ok.
  std::string_view message() const noexcept {
    if (!state_) return {};
    return state_->fixed_message.empty() ? std::string_view(state_->message) : state_->fixed_message;
  }

  // Adds a place ("layer 3, expert 7") to the chain.
  Status&& at(std::string place) &&;
  // Adds "stage NAME" to the chain, and tells stage().
  Status&& in_stage(const std::string& stage) &&;
  // Tells file() and offset() of a sentence that names the file already.
  Status&& in_file(std::string file, std::uint64_t offset = kNoOffset) &&;
  // "place: inner place: sentence"
  std::string to_string() const;

  // The places before the sentence: "outer: inner: "; empty when there are none.
  std::string_view chain() const noexcept { return state_ ? std::string_view(state_->chain) : std::string_view(); }

  // Where it happened, for programs; the innermost that was told. Empty or kNoOffset: not known.
  static constexpr std::uint64_t kNoOffset = std::numeric_limits<std::uint64_t>::max();
  std::string_view stage() const noexcept { return state_ ? std::string_view(state_->stage) : std::string_view(); }
  std::string_view file() const noexcept { return state_ ? std::string_view(state_->file) : std::string_view(); }
  std::uint64_t offset() const noexcept { return state_ ? state_->offset : kNoOffset; }

 private:
  struct State {
    ErrorCode code;
    std::string message;
    std::string chain;  // "outer: inner: "
    std::string stage;
    std::string file;
    std::uint64_t offset = kNoOffset;
    std::string_view fixed_message = {};  // in place of `message`, where there is no memory for one
  };
  // A Status may have been copied: what is added must not change what another holder sees.
  COLIBRI_HIDDEN State& own_state();
  std::shared_ptr<State> state_;
};

// Either a T or a Status that is not ok.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool is_ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return is_ok(); }
  const Status& status() const& noexcept { return status_; }
  Status&& status() && noexcept { return std::move(status_); }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define COLIBRI_CONCAT_INNER(a, b) a##b
#define COLIBRI_CONCAT(a, b) COLIBRI_CONCAT_INNER(a, b)

// Returns the Status of `expression` from the enclosing function unless it is ok.
#define COLIBRI_RETURN_IF_ERROR(expression)                                 \
  do {                                                                      \
    if (::colibri::Status colibri_status = (expression); !colibri_status) { \
      return colibri_status;                                                \
    }                                                                       \
  } while (false)

// Declares `lhs` from a Result, or returns its Status.
#define COLIBRI_ASSIGN_OR_RETURN(lhs, expression) \
  COLIBRI_ASSIGN_OR_RETURN_INNER(COLIBRI_CONCAT(colibri_result_, __LINE__), lhs, expression)
#define COLIBRI_ASSIGN_OR_RETURN_INNER(result, lhs, expression) \
  auto result = (expression);                                   \
  if (!result) return std::move(result).status();               \
  lhs = std::move(result).value()

// Arithmetic that reports overflow as nullopt. Unsigned integers only.
template <class T>
constexpr std::optional<T> checked_add(T a, T b) noexcept {
  static_assert(std::is_unsigned_v<T>);
  T sum{};
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template <class T>
constexpr std::optional<T> checked_mul(T a, T b) noexcept {
  static_assert(std::is_unsigned_v<T>);
  T product{};
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// The product of all factors, or nullopt on overflow.
template <class T, class... Rest>
constexpr std::optional<T> checked_product(T first, Rest... rest) noexcept {
  std::optional<T> product = first;
  ((product = product ? checked_mul<T>(*product, static_cast<T>(rest)) : product), ...);
  return product;
}

// `value` rounded up to a multiple of `multiple` (a power of two is not required).
template <class T>
constexpr std::optional<T> checked_round_up(T value, T multiple) noexcept {
  const T rest = value % multiple;
  return rest == 0 ? std::optional<T>(value) : checked_add<T>(value, multiple - rest);
}

}  // namespace colibri
