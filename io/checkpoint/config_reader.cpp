// Typed access to a JSON object with collected problems.
#include "io/checkpoint/config_reader.hpp"

#include <cmath>

#include "io/container/strict_json.hpp"

namespace colibri {
namespace {

constexpr std::size_t kShownValue = 60;  // characters of a value in an error

std::string show(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kShownValue) text = text.substr(0, kShownValue) + "...";
  return text;
}

bool turned_off(const nlohmann::json& value) {
  if (value.is_null() || value == false) return true;
  if (value.is_number_integer()) return value == 0;
  return (value.is_array() || value.is_object() || value.is_string()) &&
         (value.is_string() ? value.get_ref<const std::string&>().empty() : value.empty());
}

}  // namespace

const nlohmann::json* ConfigReader::find(std::string_view key) {
  read_.emplace(key);
  const auto found = object_.find(std::string(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::uint32_t> ConfigReader::unsigned_number(std::string_view key, std::uint32_t least,
                                                           std::uint32_t most) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() < least ||
      value->get<std::uint64_t>() > most) {
    wrong(key, "must be a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
                   ", found " + show(*value));
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(value->get<std::uint64_t>());
}

std::optional<double> ConfigReader::number(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    wrong(key, "must be a number, found " + show(*value));
    return std::nullopt;
  }
  return value->get<double>();
}

std::optional<bool> ConfigReader::boolean(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    wrong(key, "must be true or false, found " + show(*value));
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::string> ConfigReader::string(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    wrong(key, "must be a string, found " + show(*value));
    return std::nullopt;
  }
  return value->get<std::string>();
}

std::uint32_t ConfigReader::required_unsigned(std::string_view key, std::uint32_t least, std::uint32_t most) {
  if (find(key) == nullptr) {
    wrong(key, "is missing");
    return least;
  }
  return unsigned_number(key, least, most).value_or(least);
}

double ConfigReader::required_number(std::string_view key) {
  if (find(key) == nullptr) {
    wrong(key, "is missing");
    return 0.0;
  }
  return number(key).value_or(0.0);
}

void ConfigReader::ignore(std::span<const std::string_view> keys) { read_.insert(keys.begin(), keys.end()); }

void ConfigReader::refuse_unread() {
  for (const auto& [key, value] : object_.items()) {
    if (read_.contains(key) || turned_off(value)) continue;
    wrong(key, "is not known to this version and may change the results, found " + show(value));
  }
}

}  // namespace colibri
