#include "io/text/nearest_name.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace colibri {
namespace {

constexpr std::size_t kMaxCompared = 64;  // no name we know is longer

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Optimal string alignment distance (Damerau-Levenshtein without repeated edits of one place).
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0U : 1U)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view found, std::span<const std::string_view> names) {
  if (found.empty() || found.size() > kMaxCompared) return {};
  std::string_view best;
  std::size_t best_edits = std::max<std::size_t>(1, found.size() / 3) + 1;
  for (const std::string_view name : names) {
    const std::size_t edits = edits_between(found, name);
    if (edits < best_edits) {
      best_edits = edits;
      best = name;
    }
  }
  return best;
}

}  // namespace colibri
