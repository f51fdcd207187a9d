// Both directions of the byte alphabet; the tables are compile-time constants.
#include "io/text/byte_level.hpp"

#include "io/text/utf8.hpp"

namespace colibri {

void ByteLevelAlphabet::append_characters(std::string& text, std::string_view bytes) const {
  for (const char byte : bytes) append_code_point(text, characters_[static_cast<std::uint8_t>(byte)]);
}

void ByteLevelAlphabet::append_bytes(std::string& bytes, std::string_view token_text) const {
  const std::size_t size_before = bytes.size();
  for (std::size_t offset = 0; offset < token_text.size();) {
    const CodePoint character = code_point_at(token_text, offset);
    if (character.value >= kCharacterLimit || bytes_[character.value] < 0) {
      bytes.resize(size_before);
      bytes += token_text;
      return;
    }
    bytes += static_cast<char>(bytes_[character.value]);
    offset += character.length;
  }
}

}  // namespace colibri
