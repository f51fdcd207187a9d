// Sizes in text: "4GiB", "1.5GB", "1000".
//
// Exact integer arithmetic, overflow is an error. A lone K, M or G is refused, since it means
// 1000 to some and 1024 to others.
#include <array>
#include <cstdio>

#include "topology/pipeline_spec.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

struct Unit {
  std::string_view name;  // lower case
  std::uint64_t bytes;
};

constexpr std::uint64_t kKi = 1024;
constexpr Unit kUnits[] = {
    {"", 1},
    {"b", 1},
    {"kb", 1000},
    {"mb", 1000'000},
    {"gb", 1000'000'000},
    {"tb", 1000'000'000'000},
    {"kib", kKi},
    {"mib", kKi* kKi},
    {"gib", kKi* kKi* kKi},
    {"tib", kKi* kKi* kKi* kKi},
};
constexpr std::size_t kMaximumFractionDigits = 9;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Status not_a_size(std::string_view text) {
  return {ErrorCode::invalid_input,
          quote_value(text) +
              " is not a size; expected a number of bytes or one with a unit, such as 4GiB, 128KiB or 1.5GB"};
}

Status too_large(std::string_view text) {
  return {ErrorCode::capacity, quote_value(text) + " is too large for a size; expected less than 16 EiB"};
}

const Unit* find_unit(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  for (const Unit& unit : kUnits) {
    if (unit.name == lower) return &unit;
  }
  return nullptr;
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::size_t at = 0;
  std::uint64_t whole = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    const auto shifted = checked_mul<std::uint64_t>(whole, 10);
    const auto next = shifted
                          ? checked_add<std::uint64_t>(*shifted, static_cast<std::uint64_t>(text[at] - '0'))
                          : std::nullopt;
    if (!next) return too_large(text);
    whole = *next;
  }
  if (at == 0) return not_a_size(text);

  // Fraction as a ratio of integers, so that 1.1GB is the same number on every machine.
  std::uint64_t fraction = 0, scale = 1;
  if (at < text.size() && text[at] == '.') {
    const std::size_t begin = ++at;
    for (; at < text.size() && is_digit(text[at]); ++at) {
      fraction = fraction * 10 + static_cast<std::uint64_t>(text[at] - '0');
      scale *= 10;
      if (at - begin >= kMaximumFractionDigits) return not_a_size(text);
    }
    if (at == begin) return not_a_size(text);
  }
  if (at < text.size() && text[at] == ' ' && at + 1 < text.size()) ++at;  // "4 GiB"
  const Unit* unit = find_unit(text.substr(at));
  if (unit == nullptr || (unit->bytes == 1 && scale != 1)) return not_a_size(text);

  const auto product = checked_mul<std::uint64_t>(whole, unit->bytes);
  __extension__ using Wide = unsigned __int128;
  const auto part = static_cast<std::uint64_t>(static_cast<Wide>(fraction) * unit->bytes / scale);
  const auto sum = product ? checked_add<std::uint64_t>(*product, part) : std::nullopt;
  if (!sum) return too_large(text);
  return *sum;
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 6> kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  char buffer[48];
  if (bytes < kKi) {
    std::snprintf(buffer, sizeof buffer, "%u B", static_cast<unsigned>(bytes));
    return buffer;
  }
  double value = static_cast<double>(bytes) / kKi;
  std::size_t name = 0;
  // 1023.996 would print as 1024.00: that belongs to the next unit.
  while (value >= 1023.995 && name + 1 < kNames.size()) {
    value /= kKi;
    ++name;
  }
  std::snprintf(buffer, sizeof buffer, "%.2f %s", value, kNames[name]);
  return buffer;
}

}  // namespace colibri
