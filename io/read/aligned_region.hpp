// AlignedRegion: one anonymous mapping, aligned to 2 MiB, with huge pages advised.
//
// The home of expert slots and other large pools. Memory is zero and untouched after
// create: pages become resident when they are first written, so a pool counts only as
// far as it is used. Placement on NUMA nodes is up to whoever touches or binds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "io/status.hpp"
#include "kernels/export.hpp"

namespace colibri {

// A host's own memory for regions. Both are called from the thread that makes or drops a region.
struct MemorySource {
  // `bytes` at a multiple of `alignment` (a power of two); null: there is none.
  std::function<void*(std::size_t bytes, std::size_t alignment)> allocate;
  std::function<void(void* memory, std::size_t bytes, std::size_t alignment)> release;
};

class COLIBRI_API AlignedRegion {
 public:
  static constexpr std::uint64_t kAlignment = 2ULL << 20;

  // Maps `bytes` rounded up to kAlignment. Errors: invalid_input (0 bytes), out_of_memory
  // (more than the address space or the system gives).
  static Result<AlignedRegion> create(std::uint64_t bytes);
  // The same from a host's memory, which is cleared, and so touched. It goes back when the region goes; the
  // functions are copied into it. Errors: also invalid_input (its memory is not aligned).
  static Result<AlignedRegion> create(std::uint64_t bytes, const MemorySource& source);

  AlignedRegion() noexcept = default;  // empty
  AlignedRegion(AlignedRegion&& other) noexcept;
  AlignedRegion& operator=(AlignedRegion&& other) noexcept;
  AlignedRegion(const AlignedRegion&) = delete;
  AlignedRegion& operator=(const AlignedRegion&) = delete;
  ~AlignedRegion();

  std::byte* data() const noexcept { return data_; }
  std::uint64_t size() const noexcept { return size_; }
  std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  // Whether the kernel took the advice to use huge pages (it may still lack them).
  bool huge_pages_advised() const noexcept { return huge_pages_advised_; }

  // `length` bytes from `offset`; invalid_input when that leaves the region.
  Result<std::span<std::byte>> slice(std::uint64_t offset, std::uint64_t length) const;

  // Gives up the memory without unmapping it: for reads that may still write to it after
  // a close that timed out.
  void leak() noexcept;

 private:
  COLIBRI_HIDDEN static Result<std::uint64_t> rounded_size(std::uint64_t bytes);
  AlignedRegion(std::byte* data, std::uint64_t size, bool huge_pages_advised) noexcept
      : data_(data), size_(size), huge_pages_advised_(huge_pages_advised) {}

  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  bool huge_pages_advised_ = false;
  std::function<void(void*, std::size_t, std::size_t)> release_;  // empty: the region is a mapping of its own
};

}  // namespace colibri
