// Lists of CPUs (and of NUMA nodes) as Linux writes them: "0-3,8".
//
// The same form stands in /proc and /sys, in config files and in messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"

namespace colibri {

// Ascending CPU numbers. Refuses an empty list, a CPU named twice, and numbers above kMaximumCpu.
Result<std::vector<std::uint32_t>> parse_cpu_list(std::string_view text);
inline constexpr std::uint32_t kMaximumCpu = 8191;

// The CPUs in both lists.
std::vector<std::uint32_t> common_cpus(std::span<const std::uint32_t> ascending,
                                       std::span<const std::uint32_t> others_ascending);

// The shortest form: ranges of neighbours.
std::string format_cpu_list(std::span<const std::uint32_t> ascending);

}  // namespace colibri
