#include "io/text/json_output.hpp"

#include "io/text/utf8.hpp"

namespace colibri {
namespace {

void append_escaped(std::string& out, std::string_view valid_text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::size_t plain_from = 0;  // characters that need no escape are copied in runs
  for (std::size_t i = 0; i < valid_text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(valid_text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out += valid_text.substr(plain_from, i - plain_from);
    plain_from = i + 1;
    switch (byte) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        out += "\\u00";
        out += kHex[byte >> 4U];
        out += kHex[byte & 0xFU];
    }
  }
  out += valid_text.substr(plain_from);
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  if (!first_invalid_utf8(text)) {
    append_escaped(out, text);
  } else {
    std::string repaired;
    append_utf8_lossy(repaired, text);
    append_escaped(out, repaired);
  }
  out += '"';
}

}  // namespace colibri
