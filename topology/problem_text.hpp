// The words of a problem: quoted values, lists of names, the nearest name, places.
//
// Everything quoted may come from an untrusted file: it is clipped, and control characters and
// bytes that are not UTF-8 are escaped, so that a message stays one line on a terminal.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/pipeline_spec.hpp"

namespace colibri {

// 'text', clipped to 60 bytes, control characters and what is not UTF-8 as \xNN.
std::string quote_value(std::string_view text);

// "1 core", "2 cores"
std::string counted(std::size_t count, std::string_view thing);

// "a, b, c"
std::string join_names(std::span<const std::string_view> names);

// "; did you mean 'x'?" with the nearest of the names, or nothing.
std::string suggest_name(std::string_view wanted, std::span<const std::string_view> names);

// "file.yaml:3:7", "--set", "COLIBRI_THREADS"; empty for a default.
std::string place_text(const Origin& origin);

std::vector<std::string_view> kind_names(StageInfos kinds);
// "unknown kind 'x'; expected one of ...; did you mean 'y'?", or that the kind is missing.
std::string unknown_kind_text(std::string_view kind, StageInfos kinds);

const StageInfo* find_kind(StageInfos kinds, std::string_view kind) noexcept;
const ParamInfo* find_param(std::span<const ParamInfo> params, std::string_view name) noexcept;

}  // namespace colibri
