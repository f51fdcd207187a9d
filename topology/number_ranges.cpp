#include "topology/number_ranges.hpp"

#include <charconv>

namespace colibri {
namespace {

bool parse_number(std::string_view text, std::uint32_t& number) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

NumberRanges::Next NumberRanges::next(NumberRange& range) noexcept {
  if (ended_) return Next::end;
  const std::size_t comma = rest_.find(',');
  const std::string_view item = rest_.substr(0, comma);
  const std::size_t dash = item.find('-');
  if (!parse_number(item.substr(0, dash), range.first)) return Next::wrong;
  range.last = range.first;
  if (dash != std::string_view::npos &&
      (!parse_number(item.substr(dash + 1), range.last) || range.last < range.first)) {
    return Next::wrong;
  }
  ended_ = comma == std::string_view::npos;
  if (!ended_) rest_.remove_prefix(comma + 1);
  return Next::range;
}

}  // namespace colibri
