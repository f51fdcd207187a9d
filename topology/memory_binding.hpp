// Binding of memory to NUMA nodes.
//
// A range is bound before it is touched; its pages then come from the given node, or from
// several nodes in turn. A full node is no failure: the kernel goes on to the next one.
#pragma once

#include <cstdint>
#include <span>

#include "io/status.hpp"

namespace colibri {

// Binds the whole pages inside [address, address + bytes). No nodes: nothing is done. Errors: io, with the
// kernel's reason: containers often forbid it (EPERM, ENOSYS), and running on without is always possible.
Status bind_memory(const void* address, std::uint64_t bytes, std::span<const std::uint32_t> nodes);

// The highest node number that can be bound to.
inline constexpr std::uint32_t kMaximumNode = 1023;

}  // namespace colibri
