// The only knowledge of nlohmann-json here is how to ask a value for its type.
#include "io/text/json_cursor.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace colibri {
namespace {

const nlohmann::json& json_of(const void* value) { return *static_cast<const nlohmann::json*>(value); }

}  // namespace

JsonCursor::JsonCursor(const void* nlohmann_value, std::string path)
    : value_(nlohmann_value && json_of(nlohmann_value).is_null() ? nullptr : nlohmann_value),
      path_(std::move(path)) {}

JsonCursor JsonCursor::operator[](std::string_view key) const {
  // The path is built even for what is absent: the error about it has to say where it belongs.
  std::string path = (path_.empty() ? "" : path_ + ".") + std::string(key);
  if (!value_ || !json_of(value_).is_object()) return {nullptr, std::move(path)};
  const auto found = json_of(value_).find(key);
  return {found == json_of(value_).end() ? nullptr : &*found, std::move(path)};
}

Result<std::vector<JsonCursor>> JsonCursor::elements() const {
  if (!value_ || !json_of(value_).is_array()) return wrong_type("an array");
  std::vector<JsonCursor> elements;
  elements.reserve(json_of(value_).size());
  for (const nlohmann::json& element : json_of(value_)) {
    elements.emplace_back(&element, path_ + "[" + std::to_string(elements.size()) + "]");
  }
  return elements;
}

Status JsonCursor::expect_object() const {
  return value_ && json_of(value_).is_object() ? Status::ok() : wrong_type("an object");
}

bool JsonCursor::is_zero() const {
  return value_ && json_of(value_).is_number() && json_of(value_).get<double>() == 0;
}

Result<std::string> JsonCursor::string() const {
  if (!value_ || !json_of(value_).is_string()) return wrong_type("a string");
  return json_of(value_).get_ref<const std::string&>();
}

Result<bool> JsonCursor::boolean() const {
  if (!value_ || !json_of(value_).is_boolean()) return wrong_type("true or false");
  return json_of(value_).get<bool>();
}

Result<bool> JsonCursor::boolean_or(bool fallback) const {
  return exists() ? boolean() : Result<bool>(fallback);
}

Result<std::int64_t> JsonCursor::integer(std::int64_t lowest, std::int64_t highest) const {
  if (!value_ || !json_of(value_).is_number_integer()) return wrong_type("a whole number");
  const nlohmann::json& json = json_of(value_);
  // The parser stores what exceeds 64 signed bits as unsigned, and more than that as a float.
  const bool too_large = json.is_number_unsigned() &&
                         json.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  const std::int64_t number = too_large ? 0 : json.get<std::int64_t>();
  if (too_large || number < lowest || number > highest) {
    return Status(ErrorCode::invalid_input, "number is out of range: " + path_ + " is " + json.dump() +
                                                "; expected " + std::to_string(lowest) + " to " +
                                                std::to_string(highest));
  }
  return number;
}

Status JsonCursor::wrong_type(std::string_view expected) const {
  const std::string where = path_.empty() ? "the document" : path_;
  if (!value_) {
    return {ErrorCode::invalid_input, "field is missing: " + where + "; expected " + std::string(expected)};
  }
  return {ErrorCode::invalid_input, "field has the wrong type: " + where + " is of type " +
                                        json_of(value_).type_name() + "; expected " + std::string(expected)};
}

}  // namespace colibri
