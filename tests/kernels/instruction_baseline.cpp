#include "tests/kernels/instruction_baseline.hpp"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace colibri::kernels::testing {
namespace {

constexpr std::uint64_t kPercent = 5;

std::string change(const std::string& kernel, std::uint64_t before, std::uint64_t now) {
  char percent[32];
  const double ratio = static_cast<double>(now) / static_cast<double>(before);
  std::snprintf(percent, sizeof(percent), "%+.1f %%", (ratio - 1) * 100);
  return kernel + ": " + std::to_string(now) + " instructions, baseline " + std::to_string(before) + " (" +
         percent + ")\n";
}

}  // namespace

std::vector<std::uint64_t> counted_calls(std::string_view callgrind_output, std::string_view function) {
  const std::string wanted = "desc: Trigger: --dump-after=" + std::string(function);
  std::vector<std::uint64_t> counts;
  bool of_call = false;  // the dump was made by the end of a call, not by that of the program
  std::istringstream text{std::string(callgrind_output)};
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("desc: Trigger:")) of_call = line == wanted;
    if (of_call && line.starts_with("totals: ")) {
      counts.push_back(std::strtoull(line.c_str() + std::string_view("totals: ").size(), nullptr, 10));
    }
  }
  return counts;
}

InstructionCounts parse_baseline(std::string_view text) {
  InstructionCounts counts;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string kernel;
    std::uint64_t count = 0;
    if (!line.starts_with('#') && fields >> kernel >> count) counts[kernel] = count;
  }
  return counts;
}

std::string baseline_text(const InstructionCounts& counts) {
  std::string text =
      "# Instructions of one call of each kernel (tests/kernels/kernel_calls.cpp), counted by callgrind for "
      "the\n"
      "# compiler that this file is named after. Rewrite it, or add one for another compiler, with a release "
      "build:\n"
      "#   COLIBRI_REWRITE_BASELINE=1 build/release/bin/instruction_counts_test\n";
  for (const auto& [kernel, count] : counts) text += kernel + " " + std::to_string(count) + "\n";
  return text;
}

std::string compare_with_baseline(const InstructionCounts& baseline, const InstructionCounts& counted) {
  std::string problems;
  for (const auto& [kernel, count] : counted) {
    const auto before = baseline.find(kernel);
    if (before == baseline.end()) {
      problems += kernel + ": not in the baseline\n";
    } else if (count * 100 >= before->second * (100 + kPercent)) {
      problems += change(kernel, before->second, count);
    }
  }
  for (const auto& [kernel, count] : baseline) {
    if (!counted.contains(kernel)) problems += kernel + ": in the baseline, but no longer counted\n";
  }
  return problems;
}

std::string improvements(const InstructionCounts& baseline, const InstructionCounts& counted) {
  std::string better;
  for (const auto& [kernel, count] : counted) {
    const auto before = baseline.find(kernel);
    if (before == baseline.end() || count * 100 > before->second * (100 - kPercent)) continue;
    better += change(kernel, before->second, count);
  }
  return better;
}

}  // namespace colibri::kernels::testing
