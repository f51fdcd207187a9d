// The byte alphabet of byte-level BPE (GPT-2): each of the 256 bytes is written as one
// printable character, so that token texts are readable and JSON-safe. Printable Latin-1
// bytes stand for themselves; the other 68 are U+0100, U+0101, ... in ascending order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace colibri {

class ByteLevelAlphabet {
 public:
  constexpr ByteLevelAlphabet() noexcept {
    char16_t next = kFirstStandIn;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char16_t character = printable ? static_cast<char16_t>(byte) : next++;
      characters_[byte] = character;
      bytes_[character] = static_cast<std::int16_t>(byte);
    }
  }

  // Appends the characters that stand for `bytes`.
  void append_characters(std::string& text, std::string_view bytes) const;
  // Appends the bytes that a token text (valid UTF-8) stands for. A text with any character
  // outside the alphabet (an added token with a space in it, say) stands for itself.
  void append_bytes(std::string& bytes, std::string_view token_text) const;

 private:
  static constexpr char16_t kFirstStandIn = 0x100;
  static constexpr unsigned kCharacterLimit = kFirstStandIn + 68;

  static constexpr std::array<std::int16_t, kCharacterLimit> no_bytes() noexcept {
    std::array<std::int16_t, kCharacterLimit> bytes{};
    bytes.fill(-1);
    return bytes;
  }

  std::array<char16_t, 256> characters_{};
  std::array<std::int16_t, kCharacterLimit> bytes_ = no_bytes();  // -1: not in the alphabet
};

inline constexpr ByteLevelAlphabet kByteLevelAlphabet;

}  // namespace colibri
