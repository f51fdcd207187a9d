// The CPUs on which threads may run: set, and given back.
//
// Masks are plain arrays of fixed size, so that threads which enter and leave a placement
// allocate nothing; the cpu_set_t of the C library ends at CPU 1023.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "io/status.hpp"
#include "topology/cpu_list.hpp"

namespace colibri {

struct AffinityMask {
  std::array<std::uint64_t, (kMaximumCpu + 1) / 64> words{};
  bool empty() const noexcept;
};
// CPUs above kMaximumCpu are left out.
AffinityMask affinity_mask(std::span<const std::uint32_t> cpus) noexcept;

// Of the calling thread. False, and an empty mask, when the kernel refuses.
bool get_thread_affinity(AffinityMask& mask) noexcept;
bool set_thread_affinity(const AffinityMask& mask) noexcept;

// The calling thread's CPUs, ascending; empty when the kernel does not say.
std::vector<std::uint32_t> this_thread_cpus();

// Sets the calling thread's affinity to `cpus`; empty does nothing. Returns an error that names the CPUs.
Status pin_this_thread(std::span<const std::uint32_t> cpus);

// Gives the calling thread its affinity back at the end of a scope, whatever happened to it meanwhile.
class AffinityScope {
 public:
  AffinityScope() noexcept { get_thread_affinity(before_); }
  ~AffinityScope() {
    if (!before_.empty()) set_thread_affinity(before_);
  }
  AffinityScope(const AffinityScope&) = delete;
  AffinityScope& operator=(const AffinityScope&) = delete;

 private:
  AffinityMask before_;
};

}  // namespace colibri
