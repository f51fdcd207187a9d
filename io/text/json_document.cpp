// Builds JsonValue from the events of nlohmann-json's SAX parser, which validates UTF-8 and
// numbers and does not recurse; limits and duplicate keys are checked here as events arrive.
#include "io/text/json_document.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>

#include "io/text/json_output.hpp"

namespace colibri {
namespace {

using Sax = nlohmann::json;

// The library's sentence without its own prefix and without the quoted input, which may be megabytes.
std::string parse_reason(std::string_view what) {
  if (const auto start = what.find("syntax error"); start != std::string_view::npos)
    what.remove_prefix(start);
  const auto quote = what.find("; last read: '");
  if (quote == std::string_view::npos) return std::string(what);
  std::string reason(what.substr(0, quote));
  // "; expected ..." follows the quotation, which may itself hold any text: look from the end.
  if (const auto expected = what.rfind("; expected ");
      expected != std::string_view::npos && expected > quote) {
    reason += what.substr(expected);
  }
  return reason;
}

class Builder {
 public:
  // `keys`: top-level members to store; null: all.
  explicit Builder(const std::span<const std::string_view>* keys) : keys_(keys) {}

  Status take_error() { return std::move(error_); }
  JsonValue take_root() { return std::move(root_); }

  bool null() { return add(JsonValue()); }
  bool boolean(bool value) { return add(JsonValue(value)); }
  bool number_integer(std::int64_t value) { return add(JsonValue(value)); }
  bool number_unsigned(std::uint64_t value) {
    const bool is_signed = value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return add(is_signed ? JsonValue(static_cast<std::int64_t>(value)) : JsonValue(value));
  }
  bool number_float(double value, const std::string&) { return add(JsonValue(value)); }
  bool string(std::string& value) { return add(JsonValue(std::move(value))); }
  bool binary(Sax::binary_t&) { return fail("binary values are not JSON"); }
  bool start_object(std::size_t) { return open(JsonValue(JsonValue::Object())); }
  bool start_array(std::size_t) { return open(JsonValue(JsonValue::Array())); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    auto& names = levels_.back().names;
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return fail("the key '" + name + "' stands twice in one object; keep one");
    }
    names.push_back(name);
    if (names.size() > kMaxKeys) {
      return fail("an object has more than " + std::to_string(kMaxKeys) + " keys");
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Sax::exception& error) {
    return fail(parse_reason(error.what()) + " (byte " + std::to_string(position) + ")");
  }

 private:
  // Bounds the linear search for duplicates; far above what any request has.
  static constexpr std::size_t kMaxKeys = 256;

  struct Level {
    JsonValue value;
    std::vector<std::string> names;  // all keys so far, stored or not
    bool stored = true;
  };

  bool fail(const std::string& reason) {
    if (error_) error_ = Status(ErrorCode::invalid_input, "not valid JSON: " + reason);
    return false;
  }

  // Whether a value that arrives now is kept: not below or at a top-level member nobody asked for.
  bool wanted() const {
    if (levels_.empty()) return true;
    if (!levels_.back().stored) return false;
    if (keys_ == nullptr || levels_.size() != 1 || levels_.back().value.object() == nullptr) return true;
    return std::find(keys_->begin(), keys_->end(), levels_.back().names.back()) != keys_->end();
  }

  bool count() {
    if (++values_ <= kMaxJsonValues) return true;
    return fail("it has more than " + std::to_string(kMaxJsonValues) + " values");
  }

  bool add(JsonValue value) {
    if (!count()) return false;
    if (wanted()) attach(std::move(value));
    return true;
  }

  void attach(JsonValue value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return;
    }
    Level& parent = levels_.back();
    if (auto* array = parent.value.mutable_array()) {
      array->push_back(std::move(value));
    } else {
      parent.value.mutable_object()->emplace_back(parent.names.back(), std::move(value));
    }
  }

  bool open(JsonValue value) {
    if (!count()) return false;
    if (levels_.size() == kMaxJsonDepth) {
      return fail("it is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    const bool stored = wanted();
    levels_.push_back({std::move(value), {}, stored});
    return true;
  }

  bool close() {
    Level done = std::move(levels_.back());
    levels_.pop_back();
    if (done.stored) attach(std::move(done.value));
    return true;
  }

  const std::span<const std::string_view>* keys_;
  std::vector<Level> levels_;
  JsonValue root_;
  std::size_t values_ = 0;
  Status error_;
};

Result<JsonValue> parse(std::string_view text, const std::span<const std::string_view>* keys) {
  // The library takes a NUL byte for the end of its input.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    return Status(ErrorCode::invalid_input,
                  "not valid JSON: a NUL byte (byte " + std::to_string(nul + 1) + ")");
  }
  try {
    Builder builder(keys);
    if (!Sax::sax_parse(text.begin(), text.end(), &builder)) return builder.take_error();
    return builder.take_root();
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::out_of_memory,
                  "no memory to read a JSON text of " + std::to_string(text.size()) + " bytes");
  } catch (const std::exception& error) {
    return Status(ErrorCode::invalid_input, "not valid JSON: " + parse_reason(error.what()));
  }
}

// At most this much of a string is quoted in an error.
constexpr std::size_t kQuotedBytes = 40;

std::string quote_text(std::string_view text) {
  std::string out;
  if (text.size() <= kQuotedBytes) {
    append_json_string(out, text);
    return out;
  }
  std::size_t end = kQuotedBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  append_json_string(out, text.substr(0, end));
  return out + "...";
}

}  // namespace

bool JsonValue::is_integer() const noexcept {
  return std::holds_alternative<std::int64_t>(data_) || std::holds_alternative<std::uint64_t>(data_);
}

bool JsonValue::to_signed(std::int64_t& value) const noexcept {
  const auto* integer = std::get_if<std::int64_t>(&data_);
  if (integer != nullptr) value = *integer;
  return integer != nullptr;
}

bool JsonValue::to_unsigned(std::uint64_t& value) const noexcept {
  if (const auto* large = std::get_if<std::uint64_t>(&data_)) {
    value = *large;
    return true;
  }
  const auto* integer = std::get_if<std::int64_t>(&data_);
  if (integer == nullptr || *integer < 0) return false;
  value = static_cast<std::uint64_t>(*integer);
  return true;
}

bool JsonValue::to_double(double& value) const noexcept {
  if (const auto* real = std::get_if<double>(&data_)) {
    value = *real;
  } else if (const auto* integer = std::get_if<std::int64_t>(&data_)) {
    value = static_cast<double>(*integer);
  } else if (const auto* large = std::get_if<std::uint64_t>(&data_)) {
    value = static_cast<double>(*large);
  } else {
    return false;
  }
  return true;
}

const JsonValue* JsonValue::find(std::string_view key) const noexcept {
  if (const Object* members = object()) {
    for (const Member& member : *members) {
      if (member.first == key) return &member.second;
    }
  }
  return nullptr;
}

std::string JsonValue::describe() const {
  if (is_null()) return "null";
  if (const bool* value = boolean()) return *value ? "true" : "false";
  if (const std::string* value = text()) return "the string " + quote_text(*value);
  if (array() != nullptr) return array()->empty() ? "an empty list" : "a list";
  if (object() != nullptr) return "an object";
  if (const auto* value = std::get_if<std::int64_t>(&data_)) return "the number " + std::to_string(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&data_)) return "the number " + std::to_string(*value);
  std::string number;
  append_json_number(number, std::get<double>(data_));
  return "the number " + number;
}

Result<JsonValue> parse_json(std::string_view text) { return parse(text, nullptr); }

Result<JsonValue> parse_json_members(std::string_view text, std::span<const std::string_view> keys) {
  return parse(text, &keys);
}

}  // namespace colibri
