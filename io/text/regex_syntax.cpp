// One pass over the pattern. Unknown escapes and groups are refused: an allow-list is the
// only way to be sure that both engines read the same thing.
#include "io/text/regex_syntax.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "io/text/utf8.hpp"

namespace colibri {
namespace {

// Oniguruma's \w, as the inside of a class: marks and connectors count as word characters.
constexpr std::string_view kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (position_ < pattern_.size()) {
      COLIBRI_RETURN_IF_ERROR(in_class_ ? class_item() : item());
    }
    return std::move(output_);
  }

 private:
  std::string_view rest() const { return pattern_.substr(position_); }

  void copy(std::size_t count) {
    output_ += pattern_.substr(position_, count);
    position_ += count;
  }

  void replace(std::size_t count, std::string_view text) {
    output_ += text;
    position_ += count;
  }

  Status refuse(std::string_view construct) const {
    return {ErrorCode::unsupported,
            "regular expression construct is not supported: " + std::string(construct) + " at byte " +
                std::to_string(position_) + " of '" + std::string(pattern_) + "'"};
  }

  Status item() {
    switch (pattern_[position_]) {
      case '\\': return escape();
      case '[': return open_class();
      case '(': return open_group();
      case '{': return interval();
      default: copy(1); return Status::ok();
    }
  }

  Status open_group() {
    static constexpr std::array<std::string_view, 8> kGroups = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    if (rest().starts_with("(*")) return refuse("group '(*'");
    if (!rest().starts_with("(?")) {
      copy(1);
      return Status::ok();
    }
    const auto group = std::find_if(kGroups.begin(), kGroups.end(),
                                    [&](std::string_view prefix) { return rest().starts_with(prefix); });
    if (group != kGroups.end()) {
      copy(group->size());
      return Status::ok();
    }
    // A bare option reaches differently far in the two engines, except at the very start.
    if (position_ == 0 && rest().starts_with("(?i)")) {
      copy(4);
      return Status::ok();
    }
    return refuse("group '" + std::string(rest().substr(0, 4)) + "'");
  }

  // {n}, {n,}, {n,m} are the same in both; {,m} is not known to PCRE2; a '+' after an
  // interval repeats it in Oniguruma and makes it possessive in PCRE2.
  Status interval() {
    std::size_t end = 1;
    while (end < rest().size() && (is_digit(rest()[end]) || rest()[end] == ',')) ++end;
    const bool is_interval = end > 1 && end < rest().size() && rest()[end] == '}' && rest()[1] != '}';
    if (!is_interval) {
      replace(1, "\\{");
      return Status::ok();
    }
    if (end + 1 < rest().size() && rest()[end + 1] == '+') return refuse("'+' after an interval");
    if (rest()[1] == ',') replace(1, "{0");
    copy(rest().find('}') + 1);
    return Status::ok();
  }

  Status open_class() {
    in_class_ = true;
    copy(1);
    if (rest().starts_with("^")) copy(1);
    if (rest().starts_with("]")) return refuse("']' as the first character of a class");
    return Status::ok();
  }

  Status class_item() {
    if (rest().starts_with("&&")) return refuse("class intersection '&&'");
    switch (pattern_[position_]) {
      case '\\': return escape();
      case '[': return refuse("a class inside a class");
      case ']': in_class_ = false; break;
      default: break;
    }
    copy(1);
    return Status::ok();
  }

  Status escape() {
    if (rest().size() < 2) return refuse("a '\\' at the end");
    const char kind = rest()[1];
    switch (kind) {
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e':
      case 'd':
      case 'D': copy(2); return Status::ok();
      // PCRE2's \s includes U+180E, which lost the property White_Space in Unicode 6.3.
      case 's': replace(2, "\\p{White_Space}"); return Status::ok();
      case 'S': replace(2, "\\P{White_Space}"); return Status::ok();
      // A vertical tab here, a class of line breaks there.
      case 'v': replace(2, "\\x0b"); return Status::ok();
      case 'w':
        replace(2, in_class_ ? std::string(kWordClass) : bracket("[", kWordClass));
        return Status::ok();
      case 'W':
        if (in_class_) return refuse("'\\W' inside a class");
        replace(2, bracket("[^", kWordClass));
        return Status::ok();
      // Spelled out, because \b follows PCRE2's narrower idea of a word character.
      case 'b':
      case 'B':
        if (in_class_) return refuse("'\\b' inside a class");
        replace(2, word_boundary(kind == 'B'));
        return Status::ok();
      case 'A':
      case 'z':
      case 'Z':
        if (in_class_) return refuse("an anchor inside a class");
        copy(2);
        return Status::ok();
      case 'p':
      case 'P': return property();
      case 'x':
      case 'u': return code_point();
      default: break;
    }
    // Escaped punctuation stands for itself in both; letters and digits have meanings that differ.
    const bool is_plain =
        static_cast<unsigned char>(kind) < 0x80 && !is_digit(kind) && !is_ascii_letter(kind);
    if (!is_plain) return refuse("escape '" + std::string(rest().substr(0, 2)) + "'");
    copy(2);
    return Status::ok();
  }

  static std::string bracket(std::string_view open, std::string_view content) {
    return std::string(open) + std::string(content) + "]";
  }

  static std::string word_boundary(bool negated) {
    const std::string word = bracket("[", kWordClass);
    const std::string after = "(?<=" + word + ")";
    const std::string not_after = "(?<!" + word + ")";
    const std::string before = "(?=" + word + ")";
    const std::string not_before = "(?!" + word + ")";
    return negated ? "(?:" + after + before + "|" + not_after + not_before + ")"
                   : "(?:" + after + not_before + "|" + not_after + before + ")";
  }

  // General categories read the same; a bare script name means Script_Extensions in PCRE2.
  Status property() {
    static constexpr std::array<std::string_view, 7> kBinaryProperties = {
        "Any", "Alphabetic", "Lowercase", "Uppercase", "White_Space", "Emoji", "Ideographic"};
    const std::size_t close = rest().find('}');
    if (rest().size() < 4 || rest()[2] != '{' || close == std::string_view::npos) {
      return refuse("a property without braces");
    }
    std::string_view name = rest().substr(3, close - 3);
    const bool negated = name.starts_with("^");
    if (negated) name.remove_prefix(1);
    const bool well_formed = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return is_ascii_letter(c) || c == '_';
    });
    if (!well_formed) return refuse("property '" + std::string(name) + "'");
    // One and two letters are categories (L, Lu, Nd); everything else not listed is a script.
    const bool bare = name.size() <= 2 || std::find(kBinaryProperties.begin(), kBinaryProperties.end(),
                                                    name) != kBinaryProperties.end();
    const bool upper = (rest()[1] == 'P') != negated;
    replace(close + 1, (upper ? "\\P{" : "\\p{") + std::string(bare ? "" : "sc:") + std::string(name) + "}");
    return Status::ok();
  }

  // \xHH, \x{H...}, \uHHHH: all become \x{H...}.
  Status code_point() {
    const bool braced = rest()[1] == 'x' && rest().size() > 2 && rest()[2] == '{';
    const std::size_t begin = braced ? 3 : 2;
    const std::size_t most = braced ? 6 : rest()[1] == 'u' ? 4 : 2;
    std::size_t end = begin;
    while (end < rest().size() && end - begin < most && is_hex(rest()[end])) ++end;
    const bool complete =
        braced ? end > begin && end < rest().size() && rest()[end] == '}' : end - begin == most;
    if (!complete) return refuse("a malformed code point");
    // Oniguruma reads \x80 and above as bytes of the encoding, not as characters.
    if (most == 2 && rest()[begin] >= '8') return refuse("a byte escape above \\x7f");
    const std::string digits(rest().substr(begin, end - begin));
    replace(braced ? end + 1 : end, "\\x{" + digits + "}");
    return Status::ok();
  }

  std::string_view pattern_;
  std::size_t position_ = 0;
  std::string output_;
  bool in_class_ = false;
};

}  // namespace

Result<std::string> to_pcre2_syntax(std::string_view oniguruma_pattern) {
  if (const auto offset = first_invalid_utf8(oniguruma_pattern)) {
    return Status(ErrorCode::invalid_input,
                  "regular expression is not valid UTF-8 at byte " + std::to_string(*offset));
  }
  return Translator(oniguruma_pattern).run();
}

}  // namespace colibri
