// Strict UTF-8 (no surrogates, no overlong forms, nothing above U+10FFFF), after table
// 3-7 of the Unicode standard: only the second byte has a range that depends on the first.
#include "io/text/utf8.hpp"

#include <algorithm>

namespace colibri {
namespace {

struct LeadByte {
  std::uint8_t length;  // 0: cannot start a character
  std::uint8_t second_low;
  std::uint8_t second_high;
};

// E0 and F0 would allow overlong forms, ED surrogates, F4 values above U+10FFFF.
constexpr LeadByte lead_byte(std::uint8_t byte) noexcept {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

std::uint8_t byte_at(std::string_view text, std::size_t offset) noexcept {
  return static_cast<std::uint8_t>(text[offset]);
}

bool is_continuation(std::uint8_t byte) noexcept { return (byte & 0xC0) == 0x80; }

}  // namespace

Utf8Unit utf8_unit_at(std::string_view text, std::size_t offset) noexcept {
  using Kind = Utf8Unit::Kind;
  const LeadByte lead = lead_byte(byte_at(text, offset));
  if (lead.length == 0) return {Kind::broken, 1};
  for (std::uint8_t i = 1; i < lead.length; ++i) {
    if (offset + i == text.size()) return {Kind::truncated, i};
    const std::uint8_t byte = byte_at(text, offset + i);
    const bool fits = i == 1 ? byte >= lead.second_low && byte <= lead.second_high : is_continuation(byte);
    if (!fits) return {Kind::broken, i};
  }
  return {Kind::character, lead.length};
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) noexcept {
  for (std::size_t offset = 0; offset < text.size();) {
    if (byte_at(text, offset) < 0x80) {  // most text is ASCII
      ++offset;
      continue;
    }
    const Utf8Unit unit = utf8_unit_at(text, offset);
    if (unit.kind != Utf8Unit::Kind::character) return offset;
    offset += unit.length;
  }
  return std::nullopt;
}

std::size_t incomplete_tail_length(std::string_view text) noexcept {
  // A lead byte with missing followers can stand at most three bytes before the end.
  const std::size_t limit = std::min<std::size_t>(3, text.size());
  for (std::size_t back = 1; back <= limit; ++back) {
    const std::size_t offset = text.size() - back;
    if (is_continuation(byte_at(text, offset))) continue;
    // The last lead byte decides: everything behind it are continuation bytes.
    const bool waits = utf8_unit_at(text, offset).kind == Utf8Unit::Kind::truncated;
    return waits ? back : 0;
  }
  return 0;
}

CodePoint code_point_at(std::string_view valid_text, std::size_t offset) noexcept {
  const std::uint8_t first = byte_at(valid_text, offset);
  if (first < 0x80) return {first, 1};
  const std::uint8_t length = lead_byte(first).length;
  char32_t value = first & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) value = (value << 6) | (byte_at(valid_text, offset + i) & 0x3Fu);
  return {value, length};
}

CodePoint code_point_before(std::string_view valid_text, std::size_t end) noexcept {
  std::size_t offset = end - 1;
  while (is_continuation(byte_at(valid_text, offset))) --offset;
  return code_point_at(valid_text, offset);
}

void append_code_point(std::string& text, char32_t value) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80u | ((value >> shift) & 0x3Fu)); };
  if (value < 0x80) {
    text += static_cast<char>(value);
  } else if (value < 0x800) {
    text += static_cast<char>(0xC0u | (value >> 6));
    tail(0);
  } else if (value < 0x10000) {
    text += static_cast<char>(0xE0u | (value >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0u | (value >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

void append_utf8_lossy(std::string& text, std::string_view bytes) {
  for (std::size_t offset = 0; offset < bytes.size();) {
    const Utf8Unit unit = utf8_unit_at(bytes, offset);
    const bool whole = unit.kind == Utf8Unit::Kind::character;
    text += whole ? bytes.substr(offset, unit.length) : kReplacementCharacter;
    offset += unit.length;
  }
}

bool is_white_space(char32_t value) noexcept {
  return (value >= 0x09 && value <= 0x0D) || value == 0x20 || value == 0x85 || value == 0xA0 ||
         value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 || value == 0x2029 ||
         value == 0x202F || value == 0x205F || value == 0x3000;
}

}  // namespace colibri
