// A scanner for the plain XML that programs export: elements and attributes, no entities of its own.
//
// Text between elements, comments and declarations are skipped. Everything is bounded by the text
// itself: nothing is expanded, and nesting has a limit.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/status.hpp"

namespace colibri {

struct XmlTag {
  std::string_view name;
  std::vector<std::pair<std::string_view, std::string_view>> attributes;  // values as they stand
  bool opens = false;                                                     // <name ...> or <name .../>
  bool closes = false;                                                    // </name> or <name .../>

  // Empty when it is not there.
  std::string_view attribute(std::string_view wanted) const noexcept;
};

inline constexpr std::size_t kMaximumXmlDepth = 128;

class XmlScanner {
 public:
  explicit XmlScanner(std::string_view text) : text_(text) {}

  // The next tag; a tag without a name at the end, when all elements are closed. Errors name the line.
  Result<XmlTag> next();
  std::size_t depth() const noexcept { return open_.size(); }  // elements that are open
  std::string place() const;                                   // "line 7"

 private:
  Status error(std::string_view what) const;
  // Goes behind the next `mark`.
  Status skip_past(std::string_view mark);
  Status read_attributes(std::string_view inside, XmlTag& tag) const;

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::string_view> open_;
};

}  // namespace colibri
