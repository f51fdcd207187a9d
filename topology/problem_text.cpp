// Sentences and lines of problems.
#include "topology/problem_text.hpp"

#include <algorithm>
#include <cstdio>

namespace colibri {
namespace {

constexpr std::size_t kMaximumQuoted = 60;
constexpr std::size_t kMaximumComparedName = 80;  // bounds the work per name; no name of ours is longer

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Optimal string alignment distance: each pair of letters is swapped at most once.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string quote_value(std::string_view text) {
  std::string out = "'";
  std::size_t taken = std::min(text.size(), kMaximumQuoted);
  // Never cut inside a UTF-8 character.
  while (taken < text.size() && taken > 0 && (static_cast<unsigned char>(text[taken]) & 0xC0) == 0x80)
    --taken;
  for (const char c : text.substr(0, taken)) {
    if (const auto byte = static_cast<unsigned char>(c); byte < 0x20 || byte == 0x7F) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02X", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  if (taken < text.size()) out += "...";
  return out + "'";
}

std::string join_names(std::span<const std::string_view> names) {
  std::string out;
  for (const std::string_view name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

std::string_view nearest_name(std::string_view wanted, std::span<const std::string_view> names) {
  std::string_view best;
  if (wanted.empty() || wanted.size() > kMaximumComparedName) return best;
  std::size_t best_distance = kMaximumComparedName;
  for (const std::string_view name : names) {
    if (name.size() > kMaximumComparedName) continue;
    const std::size_t longer = std::max(wanted.size(), name.size());
    const std::size_t limit = std::max<std::size_t>(2, longer / 3);
    const std::size_t distance = edit_distance(wanted, name);
    // A word of which more than half would change is another word.
    if (distance <= limit && distance * 2 <= longer && distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::string suggest_name(std::string_view wanted, std::span<const std::string_view> names) {
  const std::string_view nearest = nearest_name(wanted, names);
  return nearest.empty() ? std::string() : "; did you mean " + quote_value(nearest) + "?";
}

std::string place_text(const Origin& origin) {
  if (origin.kind != Origin::Kind::file || origin.line == 0) return origin.file;
  return origin.file + ":" + std::to_string(origin.line) + ":" + std::to_string(origin.column);
}

std::vector<std::string_view> kind_names(StageInfos kinds) {
  std::vector<std::string_view> names;
  for (const StageInfo* info : kinds) names.push_back(info->kind);
  return names;
}

std::string unknown_kind_text(std::string_view kind, StageInfos kinds) {
  const std::vector<std::string_view> names = kind_names(kinds);
  const std::string what =
      kind.empty() ? std::string("kind is missing") : "unknown kind " + quote_value(kind);
  return what + "; expected one of " + join_names(names) + suggest_name(kind, names);
}

const StageInfo* find_kind(StageInfos kinds, std::string_view kind) noexcept {
  for (const StageInfo* info : kinds) {
    if (info->kind == kind) return info;
  }
  return nullptr;
}

const ParamInfo* find_param(std::span<const ParamInfo> params, std::string_view name) noexcept {
  for (const ParamInfo& param : params) {
    if (param.name == name) return &param;
  }
  return nullptr;
}

void PipelineProblems::add(const Origin& origin, std::string_view path, std::string_view what) {
  if (lines.size() > kMaximumProblems) return;
  std::string line = place_text(origin);
  // "--set" is followed by the path it set; other places are set apart from it.
  if (!line.empty() && !path.empty()) line += line == "--set" ? " " : ": ";
  line += path;
  if (!line.empty()) line += ": ";
  line += what;
  if (std::find(lines.begin(), lines.end(), line) != lines.end()) return;
  if (lines.size() == kMaximumProblems) line = "there are more problems than are listed; correct these first";
  lines.push_back(std::move(line));
}

Status PipelineProblems::to_status() const {
  if (lines.empty()) return {};
  std::string all;
  for (const std::string& line : lines) {
    if (!all.empty()) all += '\n';
    all += line;
  }
  return {ErrorCode::invalid_input, std::move(all)};
}

}  // namespace colibri
