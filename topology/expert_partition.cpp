#include "topology/expert_partition.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "topology/problem_text.hpp"
#include "topology/proc_text.hpp"

namespace colibri {
namespace {

constexpr std::size_t kMaximumItems = 64;
constexpr std::string_view kForms = "all, or ids, ranges and remainders such as 7,0-31,32-,0/2";

Status refuse_experts(std::string_view text, std::string_view why, std::string_view expected) {
  return {ErrorCode::invalid_input,
          quote_value(text) + " " + std::string(why) + "; expected " + std::string(expected)};
}

// Digits only; a number too large to hold is one out of range.
std::optional<std::uint32_t> number_of(std::string_view digits) {
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() ? value : std::numeric_limits<std::uint32_t>::max();
}

}  // namespace

Result<ExpertPartition::Item> ExpertPartition::parse_item(std::string_view text) {
  const std::size_t mark = text.find_first_of("-/");
  const std::optional<std::uint32_t> first = number_of(text.substr(0, mark));
  const std::string_view rest = mark == std::string_view::npos ? "" : text.substr(mark + 1);
  const bool open = mark != std::string_view::npos && text[mark] == '-' && rest.empty();
  const std::optional<std::uint32_t> second =
      mark == std::string_view::npos || open ? first : number_of(rest);
  if (!first || !second) return refuse_experts(text, "names no experts", kForms);
  if (mark != std::string_view::npos && text[mark] == '/') {
    if (*second == 0 || *second > kExpertIdLimit) {
      return refuse_experts(text, "divides by a number out of range",
                            "one from 1 to " + std::to_string(kExpertIdLimit));
    }
    if (*first >= *second) {
      return refuse_experts(text, "has a remainder that no id leaves",
                            "one below " + std::to_string(*second) + ", as in 0/" + std::to_string(*second));
    }
    return Item{*first, kNoEnd, *second};
  }
  if (*first >= kExpertIdLimit || *second >= kExpertIdLimit) {
    return refuse_experts(text, "is out of range", "ids from 0 to " + std::to_string(kExpertIdLimit - 1));
  }
  if (*second < *first) {
    return refuse_experts(
        text, "runs backwards",
        "the lower id first, as in " + std::to_string(*second) + "-" + std::to_string(*first));
  }
  return Item{*first, open ? kNoEnd : *second, 1};
}

Result<ExpertPartition> ExpertPartition::parse(std::string_view text) {
  ExpertPartition partition;
  if (trim_blanks(text) == "all") return partition;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    COLIBRI_ASSIGN_OR_RETURN(const Item item, parse_item(trim_blanks(rest.substr(0, comma))));
    if (partition.items_.size() == kMaximumItems) {
      return refuse_experts(text, "has too many parts", "at most " + std::to_string(kMaximumItems));
    }
    partition.items_.push_back(item);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::vector<bool> named(kExpertIdLimit);
  for (const Item& item : partition.items_) {
    for (std::uint32_t id = item.first; id <= item.last && id < kExpertIdLimit; id += item.step) {
      if (named[id])
        return refuse_experts(text, "names expert " + std::to_string(id) + " twice", "each expert once");
      named[id] = true;
    }
  }
  return partition;
}

bool ExpertPartition::contains(std::uint32_t expert) const noexcept {
  if (items_.empty()) return true;
  return std::any_of(items_.begin(), items_.end(), [expert](const Item& item) {
    return expert >= item.first && expert <= item.last && (expert - item.first) % item.step == 0;
  });
}

std::uint32_t ExpertPartition::largest_named() const noexcept {
  std::uint32_t largest = 0;
  for (const Item& item : items_) {
    largest = std::max({largest, item.first, item.step - 1, item.last == kNoEnd ? 0 : item.last});
  }
  return largest;
}

std::string ExpertPartition::text() const {
  if (items_.empty()) return "all";
  std::string text;
  for (const Item& item : items_) {
    if (!text.empty()) text += ',';
    text += std::to_string(item.first);
    if (item.step > 1) {
      text += '/' + std::to_string(item.step);
    } else if (item.last != item.first) {
      text += item.last == kNoEnd ? "-" : "-" + std::to_string(item.last);
    }
  }
  return text;
}

}  // namespace colibri
