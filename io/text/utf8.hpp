// UTF-8 as the tokenizer needs it: strict validation with the offset of the first bad
// byte, iteration over text already known to be valid, and the two questions that
// streaming asks: how many bytes at the end are only the start of a character, and how
// do broken bytes read (one U+FFFD per maximal broken part, as the Unicode standard and
// every other decoder of token bytes do it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace colibri {

// What stands at one offset of a byte string.
struct Utf8Unit {
  enum class Kind : std::uint8_t {
    character,  // a whole valid character of `length` bytes
    truncated,  // the text ends inside what could still become a character
    broken,     // `length` bytes that can never be part of a character
  };
  Kind kind;
  std::uint8_t length;  // 1..4; bytes that are present
};

// `offset` must be smaller than `text.size()`.
Utf8Unit utf8_unit_at(std::string_view text, std::size_t offset) noexcept;

// The byte offset of the first broken or truncated character, or nullopt when all is valid.
std::optional<std::size_t> first_invalid_utf8(std::string_view text) noexcept;

// How many bytes at the end of `text` (0..3) are the start of a character that more bytes
// could complete. Broken bytes do not count: waiting cannot heal them.
std::size_t incomplete_tail_length(std::string_view text) noexcept;

// The character at `offset` of valid text; `length` is how many bytes it takes.
struct CodePoint {
  char32_t value;
  std::uint8_t length;
};
CodePoint code_point_at(std::string_view valid_text, std::size_t offset) noexcept;

// The character that ends at byte `end` (> 0) of valid text.
CodePoint code_point_before(std::string_view valid_text, std::size_t end) noexcept;

// `value` must be a Unicode scalar value.
void append_code_point(std::string& text, char32_t value);

// U+FFFD, which stands for what is not UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Appends `bytes` with every maximal broken part (a truncated tail included) as U+FFFD.
void append_utf8_lossy(std::string& text, std::string_view bytes);

// The Unicode property White_Space, which is what the token formats call whitespace.
bool is_white_space(char32_t value) noexcept;

}  // namespace colibri
