// Sentences and lines of problems.
//
// A line has the form place: path: what is wrong; what is expected; nearest name. The same
// line is never listed twice, so that checks may overlap without repeating themselves.
#include "topology/problem_text.hpp"

#include <algorithm>
#include <cstdio>

#include "io/text/nearest_name.hpp"
#include "io/text/utf8.hpp"

namespace colibri {
namespace {

constexpr std::size_t kMaximumQuoted = 60;
constexpr std::size_t kMaximumPlace = 300;  // a path or a file name

// At most `limit` bytes, on one line.
std::string one_line(std::string_view text, std::size_t limit) {
  std::string out;
  std::size_t taken = std::min(text.size(), limit);
  // Never cut inside a UTF-8 character.
  while (taken < text.size() && taken > 0 && (static_cast<unsigned char>(text[taken]) & 0xC0) == 0x80)
    --taken;
  for (std::size_t at = 0; at < taken;) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const Utf8Unit unit = utf8_unit_at(text.substr(0, taken), at);
    if (byte < 0x20 || byte == 0x7F || unit.kind != Utf8Unit::Kind::character) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02X", byte);
      out += escaped;
      ++at;
    } else {
      out += text.substr(at, unit.length);
      at += unit.length;
    }
  }
  if (taken < text.size()) out += "...";
  return out;
}

}  // namespace

std::string quote_value(std::string_view text) { return '\'' + one_line(text, kMaximumQuoted) + '\''; }

std::string counted(std::size_t count, std::string_view thing) {
  return std::to_string(count) + " " + std::string(thing) + (count == 1 ? "" : "s");
}

std::string join_names(std::span<const std::string_view> names) {
  std::string out;
  for (const std::string_view name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

std::string suggest_name(std::string_view wanted, std::span<const std::string_view> names) {
  const std::string_view nearest = nearest_name(wanted, names);
  return nearest.empty() ? std::string() : "; did you mean " + quote_value(nearest) + "?";
}

std::string place_text(const Origin& origin) {
  const std::string name = one_line(origin.file, kMaximumPlace);
  if (origin.kind != Origin::Kind::file || origin.line == 0) return name;
  return name + ":" + std::to_string(origin.line) + ":" + std::to_string(origin.column);
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
  line += one_line(path, kMaximumPlace);
  if (!line.empty()) line += ": ";
  line += what;
  if (std::find(lines.begin(), lines.end(), line) != lines.end()) return;
  if (file.empty() && origin.kind == Origin::Kind::file) file = origin.file;
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
  Status status(ErrorCode::invalid_input, std::move(all));
  return file.empty() ? status : std::move(status).in_file(file);
}

}  // namespace colibri
