// mbind of libnuma, the bare system call: libnuma's higher functions print and exit.
#include "topology/memory_binding.hpp"

#include <numaif.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "topology/cpu_list.hpp"

namespace colibri {
namespace {

constexpr std::size_t kWordBits = sizeof(unsigned long) * 8;

std::uintptr_t page_bytes() { return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

Status bind_memory(const void* address, std::uint64_t bytes, std::span<const std::uint32_t> nodes) {
  if (nodes.empty()) return {};
  // Pages at the ends that are shared with other memory stay as they are.
  const std::uintptr_t page = page_bytes();
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t first = (start + page - 1) / page * page;
  const std::uintptr_t last = (start + bytes) / page * page;
  if (last <= first) return {};
  std::array<unsigned long, (kMaximumNode + 1) / kWordBits> mask{};
  for (const std::uint32_t node : nodes) {
    if (node > kMaximumNode) {
      return {ErrorCode::invalid_input, "memory cannot be bound to NUMA node " + std::to_string(node) +
                                            "; the highest is " + std::to_string(kMaximumNode)};
    }
    mask[node / kWordBits] |= 1UL << (node % kWordBits);
  }
  // Preferred rather than bound: when the node is full, a slower page is better than the end of the process.
  const int mode = nodes.size() == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
  // The kernel reads one bit less than it is told.
  if (::mbind(reinterpret_cast<void*>(first), last - first, mode, mask.data(), kMaximumNode + 2, 0) == 0)
    return {};
  return {ErrorCode::io, "memory could not be bound to NUMA nodes " + format_cpu_list(nodes) + ": " +
                             std::strerror(errno) + "; it stays where it is touched first"};
}

}  // namespace colibri
