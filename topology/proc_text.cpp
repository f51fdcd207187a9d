// Reading of small kernel files. They have no size to ask for, hence are read to their end.
#include "topology/proc_text.hpp"

#include <charconv>
#include <fstream>

namespace colibri {
namespace {
constexpr std::size_t kMaximumText = std::size_t{1} << 20;
constexpr std::string_view kBlanks = " \t\r\n";
}  // namespace

std::optional<std::string> read_proc_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (text.size() < kMaximumText && (file.read(buffer, sizeof buffer), file.gcount() > 0)) {
    text.append(buffer, static_cast<std::size_t>(file.gcount()));
  }
  // A directory opens, but does not read.
  if (file.bad()) return std::nullopt;
  return text;
}

std::string_view trim_blanks(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::optional<std::uint64_t> leading_number(std::string_view text) noexcept {
  text = trim_blanks(text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<std::string_view> line_value(std::string_view text, std::string_view key) noexcept {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(key)) return trim_blanks(line.substr(key.size()));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return std::nullopt;
}

}  // namespace colibri
