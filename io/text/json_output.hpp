// Appends JSON values to a string: the writing side of results.
//
// What comes out is always valid JSON: broken UTF-8 becomes U+FFFD, an infinity or NaN
// becomes null, floats are printed with the fewest digits that read back as the same float
// and always look like floats, so that readers that infer types see one type.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <string>
#include <string_view>

namespace colibri {

// With its quotes.
void append_json_string(std::string& out, std::string_view text);

template <class Number>
requires std::integral<Number> || std::floating_point<Number>
void append_json_number(std::string& out, Number value) {
  if constexpr (std::floating_point<Number>) {
    if (!std::isfinite(value)) {
      out += "null";
      return;
    }
  }
  char digits[32];  // the longest double takes 24, the longest integer 20
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out.append(digits, end);
  if constexpr (std::floating_point<Number>) {
    if (std::string_view(digits, end).find_first_of(".e") == std::string_view::npos) out += ".0";
  }
}

// "[1, 2.5]"
template <class Numbers>
void append_json_numbers(std::string& out, const Numbers& numbers) {
  out += '[';
  for (const auto& number : numbers) {
    if (out.back() != '[') out += ", ";
    append_json_number(out, number);
  }
  out += ']';
}

}  // namespace colibri
