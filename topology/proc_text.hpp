// Small text files of /proc, /sys and cgroup file systems.
//
// What they say differs between kernels, so everything here answers with nothing rather than
// an error when a file, a line or a number is not there; the caller knows what that means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace colibri {

// The whole file, at most 1 MiB of it; nullopt when it cannot be read.
std::optional<std::string> read_proc_text(const std::string& path);

// The unsigned number that the text starts with, blanks before it skipped; nullopt: none, or too large.
std::optional<std::uint64_t> leading_number(std::string_view text) noexcept;

// The rest of the first line that starts with `key`, without blanks around it: "VmHWM:" -> "2104 kB".
std::optional<std::string_view> line_value(std::string_view text, std::string_view key) noexcept;

std::string_view trim_blanks(std::string_view text) noexcept;

}  // namespace colibri
