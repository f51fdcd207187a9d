#include "topology/xml_scan.hpp"

#include <algorithm>

namespace colibri {
namespace {

constexpr std::string_view kXmlBlanks = " \t\r\n";

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string_view without_blanks(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kXmlBlanks), text.size()));
  return text;
}

}  // namespace

std::string_view XmlTag::attribute(std::string_view wanted) const noexcept {
  for (const auto& [attribute_name, value] : attributes) {
    if (attribute_name == wanted) return value;
  }
  return {};
}

std::string XmlScanner::place() const {
  const std::string_view before = text_.substr(0, at_);
  return "line " + std::to_string(1 + std::count(before.begin(), before.end(), '\n'));
}

Status XmlScanner::error(std::string_view what) const {
  return {ErrorCode::invalid_input, "it is no XML that can be read: " + std::string(what) + ", " + place()};
}

Status XmlScanner::skip_past(std::string_view mark) {
  const std::size_t found = text_.find(mark, at_);
  if (found == std::string_view::npos) return error("it ends early");
  at_ = found + mark.size();
  return {};
}

Result<XmlTag> XmlScanner::next() {
  for (;;) {
    const std::size_t begin = text_.find('<', at_);
    if (begin == std::string_view::npos) {
      if (!open_.empty()) return error("it ends early");
      return XmlTag{};
    }
    at_ = begin;
    const std::string_view rest = text_.substr(begin);
    if (rest.starts_with("<!--")) {
      COLIBRI_RETURN_IF_ERROR(skip_past("-->"));
    } else if (rest.starts_with("<?") || rest.starts_with("<!")) {
      // A declaration with parts of its own could define entities.
      const std::string_view declaration = rest.substr(0, rest.find('>'));
      if (declaration.find('[') != std::string_view::npos) return error("a declaration has parts");
      COLIBRI_RETURN_IF_ERROR(skip_past(">"));
    } else {
      break;
    }
  }
  const std::size_t end = text_.find('>', at_);
  if (end == std::string_view::npos) return error("it ends early");
  std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
  XmlTag tag;
  tag.opens = !inside.starts_with('/');
  tag.closes = !tag.opens || inside.ends_with('/');
  if (!tag.opens) inside.remove_prefix(1);
  if (tag.opens && tag.closes) inside.remove_suffix(1);
  tag.name = inside.substr(0, inside.find_first_of(kXmlBlanks));
  if (!is_name(tag.name)) return error("an element has no name");
  COLIBRI_RETURN_IF_ERROR(read_attributes(inside.substr(tag.name.size()), tag));
  if (tag.opens) open_.push_back(tag.name);
  if (open_.size() > kMaximumXmlDepth) return error("elements are nested too deeply");
  if (tag.closes) {
    if (open_.empty() || open_.back() != tag.name) return error("an end has no beginning");
    open_.pop_back();
  }
  at_ = end + 1;
  return tag;
}

Status XmlScanner::read_attributes(std::string_view inside, XmlTag& tag) const {
  for (inside = without_blanks(inside); !inside.empty(); inside = without_blanks(inside)) {
    const std::size_t equals = inside.find('=');
    const std::string_view name = inside.substr(0, equals);
    if (equals == std::string_view::npos || !is_name(name)) return error("an attribute has no value");
    inside.remove_prefix(equals + 1);
    const char quote = inside.empty() ? '\0' : inside.front();
    const std::size_t end = quote == '"' || quote == '\'' ? inside.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos) return error("an attribute has no value");
    tag.attributes.emplace_back(name, inside.substr(1, end - 1));
    inside.remove_prefix(end + 1);
  }
  return {};
}

}  // namespace colibri
