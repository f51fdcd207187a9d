// JSON files parsed with limits: depth, no duplicate keys, errors with file and position.
//
// Internal to io: this header exposes nlohmann::json and is included from .cpp files only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "io/status.hpp"

namespace colibri {

inline constexpr int kMaxJsonDepth = 64;

// `source` names the text in errors, usually the path of the file.
Result<nlohmann::json> parse_strict_json(std::string_view text, const std::string& source);

// What a value is, in words for errors: "a number", "null", ...
std::string_view json_kind(const nlohmann::json& value) noexcept;

// The value as an unsigned 64-bit number; numbers like 1.0 or -1 are refused.
Result<std::uint64_t> json_unsigned(const nlohmann::json& value);

}  // namespace colibri
