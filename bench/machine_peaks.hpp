// What one core of this machine can do at most, for the figures of kernels to be compared with: the
// instructions that products are made of, out of registers, and reading memory.
#pragma once

#include <string_view>
#include <vector>

namespace colibri {

// Seconds that the calling thread has run: what others make it wait for is left out.
double thread_seconds();

struct MachinePeak {
  std::string_view name;    // that of its bench
  double per_second = 0.0;  // operations, a product counting as two; or bytes
};

// Every peak that this processor has, each the best of several short runs.
std::vector<MachinePeak> measure_machine_peaks();

// Registers a bench for each of them, so that a result tells how much they vary.
void register_machine_peaks();

}  // namespace colibri
