// A nlohmann-json parse whose callback enforces depth and unique keys.
#include "io/container/strict_json.hpp"

#include <set>
#include <stdexcept>
#include <vector>

namespace colibri {

Result<nlohmann::json> parse_strict_json(std::string_view text, const std::string& source) {
  std::vector<std::set<std::string>> keys;  // of every object that is open
  using Event = nlohmann::json::parse_event_t;
  const auto check = [&keys](int depth, Event event, nlohmann::json& parsed) {
    if (depth > kMaxJsonDepth) {
      throw std::runtime_error("nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw std::runtime_error("key \"" + parsed.get<std::string>() + "\" occurs twice");
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, check);
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::out_of_memory, "no memory to parse JSON: " + source);
  } catch (const std::exception& error) {
    return Status(ErrorCode::invalid_input, "not valid JSON: " + source + ": " + error.what());
  }
}

std::string_view json_kind(const nlohmann::json& value) noexcept {
  switch (value.type()) {
    case nlohmann::json::value_t::null: return "null";
    case nlohmann::json::value_t::object: return "an object";
    case nlohmann::json::value_t::array: return "a list";
    case nlohmann::json::value_t::string: return "a string";
    case nlohmann::json::value_t::boolean: return "a boolean";
    case nlohmann::json::value_t::number_float: return "a fraction";
    default: return "a whole number";
  }
}

Result<std::uint64_t> json_unsigned(const nlohmann::json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  return Status(ErrorCode::invalid_input,
                "must be a whole number that is not negative, found " +
                    (value.is_number() ? value.dump() : std::string(json_kind(value))));
}

}  // namespace colibri
