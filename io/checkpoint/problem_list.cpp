// Joining of problem sentences.
#include "io/checkpoint/problem_list.hpp"

#include <algorithm>

namespace colibri {
namespace {

constexpr std::size_t kShownProblems = 20;

}  // namespace

std::string list_problems(std::span<const std::string> problems) {
  std::string list;
  for (const std::string& problem : problems.first(std::min(problems.size(), kShownProblems))) {
    if (!list.empty()) list += "; ";
    list += problem;
  }
  if (problems.size() > kShownProblems) {
    list += "; and " + std::to_string(problems.size() - kShownProblems) + " more";
  }
  return list;
}

}  // namespace colibri
