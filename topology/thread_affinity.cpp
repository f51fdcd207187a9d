// Affinity by the system calls' own interface: their masks are arrays of words of any length.
#include "topology/thread_affinity.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace colibri {

bool AffinityMask::empty() const noexcept {
  return std::all_of(words.begin(), words.end(), [](std::uint64_t word) { return word == 0; });
}

AffinityMask affinity_mask(std::span<const std::uint32_t> cpus) noexcept {
  AffinityMask mask;
  for (const std::uint32_t cpu : cpus) {
    if (cpu <= kMaximumCpu) mask.words[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
  }
  return mask;
}

bool get_thread_affinity(AffinityMask& mask) noexcept {
  mask = {};
  if (sched_getaffinity(0, sizeof mask.words, reinterpret_cast<cpu_set_t*>(mask.words.data())) == 0)
    return true;
  mask = {};
  return false;
}

bool set_thread_affinity(const AffinityMask& mask) noexcept {
  return sched_setaffinity(0, sizeof mask.words, reinterpret_cast<const cpu_set_t*>(mask.words.data())) == 0;
}

std::vector<std::uint32_t> this_thread_cpus() {
  AffinityMask mask;
  get_thread_affinity(mask);
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t cpu = 0; cpu <= kMaximumCpu; ++cpu) {
    if ((mask.words[cpu / 64] >> (cpu % 64) & 1) != 0) cpus.push_back(cpu);
  }
  return cpus;
}

Status pin_this_thread(std::span<const std::uint32_t> cpus) {
  if (cpus.empty()) return {};
  const std::uint32_t highest = *std::max_element(cpus.begin(), cpus.end());
  if (highest > kMaximumCpu) {
    return {ErrorCode::invalid_input, "cannot pin a thread to CPU " + std::to_string(highest) +
                                          "; the highest is " + std::to_string(kMaximumCpu)};
  }
  if (set_thread_affinity(affinity_mask(cpus))) return {};
  return {ErrorCode::io, "cannot pin a thread to CPUs " + format_cpu_list(cpus) + ": " +
                             std::strerror(errno) + "; choose CPUs that exist and that this process may use"};
}

}  // namespace colibri
