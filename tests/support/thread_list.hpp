// The threads of this process as the kernel sees them: names and CPUs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "topology/cpu_list.hpp"
#include "topology/proc_text.hpp"

namespace colibri::testing {

struct ThreadFacts {
  std::string name;
  std::vector<std::uint32_t> cpus;  // on which it may run
};

// Threads that end meanwhile are left out.
inline std::vector<ThreadFacts> threads_of_this_process() {
  std::vector<ThreadFacts> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string status = read_proc_text(task.path() / "status").value_or("");
    const auto cpus = line_value(status, "Cpus_allowed_list:");
    const auto list = parse_cpu_list(cpus.value_or(""));
    if (list) threads.push_back({std::string(line_value(status, "Name:").value_or("")), *list});
  }
  return threads;
}

}  // namespace colibri::testing
