// The baseline of instruction counts: what callgrind wrote, the committed file, and their comparison.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace colibri::kernels::testing {

using InstructionCounts = std::map<std::string, std::uint64_t>;  // by "variant/kernel"

// The instructions of each call of `function`, in order, from the output of
//   callgrind --toggle-collect=FUNCTION --dump-after=FUNCTION --combine-dumps=yes
std::vector<std::uint64_t> counted_calls(std::string_view callgrind_output, std::string_view function);

// A line each "variant/kernel count"; lines that start with # are comments.
InstructionCounts parse_baseline(std::string_view text);
std::string baseline_text(const InstructionCounts& counts);

// What is wrong, a line each: kernels that take at least 5 % more than the baseline says, or that only one
// of both has. Empty when nothing is.
std::string compare_with_baseline(const InstructionCounts& baseline, const InstructionCounts& counted);
// The kernels that take at least 5 % less: the baseline should follow. A line each.
std::string improvements(const InstructionCounts& baseline, const InstructionCounts& counted);

}  // namespace colibri::kernels::testing
