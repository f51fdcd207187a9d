// JsonDocument: one JSON text as plain values, read strictly and within limits.
//
// Stricter than most readers on purpose, because a request must mean one thing: a key that
// stands twice, invalid UTF-8, a NUL byte, and text after the value are errors, and depth
// and number of values are bounded, so that a hostile line cannot cost more memory than a
// small multiple of its length. Integers stay exact over the whole signed and unsigned
// 64-bit range. No third-party type leaves the .cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/status.hpp"

namespace colibri {

inline constexpr std::size_t kMaxJsonDepth = 64;
inline constexpr std::size_t kMaxJsonValues = std::size_t{2} << 20;

class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Member = std::pair<std::string, JsonValue>;
  using Object = std::vector<Member>;  // in the order of the text
  // Integers above the signed range are uint64_t, all others int64_t.
  using Data =
      std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object>;

  JsonValue() = default;
  explicit JsonValue(Data data) : data_(std::move(data)) {}

  bool is_null() const noexcept { return std::holds_alternative<std::nullptr_t>(data_); }
  const bool* boolean() const noexcept { return std::get_if<bool>(&data_); }
  const std::string* text() const noexcept { return std::get_if<std::string>(&data_); }
  const Array* array() const noexcept { return std::get_if<Array>(&data_); }
  const Object* object() const noexcept { return std::get_if<Object>(&data_); }
  bool is_integer() const noexcept;
  // True and sets `value` when this is an integer that fits.
  bool to_signed(std::int64_t& value) const noexcept;
  bool to_unsigned(std::uint64_t& value) const noexcept;
  // True and sets `value` for any number; integers are rounded to the nearest double.
  bool to_double(double& value) const noexcept;
  // The member of an object with this key; null when absent or when this is no object.
  const JsonValue* find(std::string_view key) const noexcept;

  // What it is, for "found ..." in an error: `the string "abc"`, `the number 1.5`, `a list`.
  std::string describe() const;

  Array* mutable_array() noexcept { return std::get_if<Array>(&data_); }
  Object* mutable_object() noexcept { return std::get_if<Object>(&data_); }

 private:
  Data data_ = nullptr;
};

// Reads one JSON value that spans the whole of `text`.
Result<JsonValue> parse_json(std::string_view text);

// The same for an object of which only some members are of interest: the others are
// checked but not stored. A text that is no object gives that value.
Result<JsonValue> parse_json_members(std::string_view text, std::span<const std::string_view> keys);

}  // namespace colibri
