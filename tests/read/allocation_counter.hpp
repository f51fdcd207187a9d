// Counts every allocation of the executable that links allocation_counter.cpp, on all threads.
#pragma once

#include <cstdint>

namespace colibri::testing {

std::uint64_t allocations();

}  // namespace colibri::testing
