#include "runtime/cli/value_checks.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>

namespace colibri::cli {

std::string check_is_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && std::isfinite(value)) return {};
  return "expected a decimal number: " + text;
}

std::string check_is_unsigned(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size()) return {};
  return "expected an integer from 0 to 18446744073709551615: " + text;
}

std::string check_not_empty(const std::string& text) {
  return text.empty() ? "expected a text that is not empty" : "";
}

}  // namespace colibri::cli
