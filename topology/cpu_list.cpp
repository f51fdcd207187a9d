// Parsing and writing of CPU lists. A list may come from a config file: a range is checked
// before it is expanded, and the number of CPUs is bounded.
#include "topology/cpu_list.hpp"

#include <algorithm>
#include <iterator>

#include "topology/number_ranges.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
Result<std::vector<std::uint32_t>> parse_cpu_list(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return Status(ErrorCode::invalid_input, quote_value(text) + " " + std::string(why) +
                                                "; expected CPU numbers up to " +
                                                std::to_string(kMaximumCpu) + " and ranges, such as 0-3,8");
  };
  std::vector<std::uint32_t> cpus;
  NumberRanges ranges(text);
  for (NumberRange range;;) {
    const NumberRanges::Next next = ranges.next(range);
    if (next == NumberRanges::Next::end) break;
    if (next == NumberRanges::Next::wrong || range.last > kMaximumCpu) return refuse("is not a list of CPUs");
    for (std::uint32_t cpu = range.first; cpu <= range.last; ++cpu) cpus.push_back(cpu);
    if (cpus.size() > 2 * std::size_t{kMaximumCpu}) return refuse("names a CPU twice");
  }
  std::sort(cpus.begin(), cpus.end());
  if (std::adjacent_find(cpus.begin(), cpus.end()) != cpus.end()) return refuse("names a CPU twice");
  return cpus;
}

std::vector<std::uint32_t> common_cpus(std::span<const std::uint32_t> ascending,
                                       std::span<const std::uint32_t> others_ascending) {
  std::vector<std::uint32_t> both;
  std::set_intersection(ascending.begin(), ascending.end(), others_ascending.begin(), others_ascending.end(),
                        std::back_inserter(both));
  return both;
}

std::string format_cpu_list(std::span<const std::uint32_t> ascending) {
  std::string out;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    if (!out.empty()) out += ',';
    out += std::to_string(ascending[i]);
    if (last > i) out += '-' + std::to_string(ascending[last]);
    i = last + 1;
  }
  return out;
}

}  // namespace colibri
