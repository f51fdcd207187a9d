#include "io/read/aligned_region.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

namespace colibri {

Result<std::uint64_t> AlignedRegion::rounded_size(std::uint64_t bytes) {
  if (bytes == 0) {
    return Status(ErrorCode::invalid_input, "memory region is empty: 0 bytes; ask for at least 1");
  }
  const auto rounded = checked_round_up<std::uint64_t>(bytes, kAlignment);
  const auto mapped = rounded ? checked_add<std::uint64_t>(*rounded, kAlignment) : std::nullopt;
  if (!mapped || *mapped > static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max())) {
    return Status(ErrorCode::out_of_memory, "memory region exceeds the address space: " +
                                                std::to_string(bytes) + " bytes; ask for less memory");
  }
  return *rounded;
}

Result<AlignedRegion> AlignedRegion::create(std::uint64_t bytes) {
  COLIBRI_ASSIGN_OR_RETURN(const std::uint64_t rounded, rounded_size(bytes));
  const std::uint64_t mapped = rounded + kAlignment;
  // Map one alignment more than needed and give back what lies outside the aligned part.
  void* base = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    const std::string reason = std::generic_category().message(errno);
    return Status(ErrorCode::out_of_memory, "memory region was refused: " + std::to_string(bytes) +
                                                " bytes, " + reason +
                                                "; ask for less memory or raise the limit (ulimit -v)");
  }
  auto* begin = static_cast<std::byte*>(base);
  const auto misalignment = reinterpret_cast<std::uintptr_t>(begin) % kAlignment;
  const std::uint64_t head = misalignment == 0 ? 0 : kAlignment - misalignment;
  if (head != 0) ::munmap(begin, head);
  ::munmap(begin + head + rounded, kAlignment - head);
  const bool advised = ::madvise(begin + head, rounded, MADV_HUGEPAGE) == 0;
  return AlignedRegion(begin + head, rounded, advised);
}

Result<AlignedRegion> AlignedRegion::create(std::uint64_t bytes, const MemorySource& source) {
  COLIBRI_ASSIGN_OR_RETURN(const std::uint64_t rounded, rounded_size(bytes));
  AlignedRegion region;
  region.release_ = source.release;  // copied first: it may need memory itself
  void* memory = source.allocate(rounded, kAlignment);
  if (memory == nullptr) {
    return Status(ErrorCode::out_of_memory,
                  "the allocator of the host gave no memory: " + std::to_string(rounded) +
                      " bytes; lower the memory settings, or let it give more");
  }
  region.data_ = static_cast<std::byte*>(memory);
  region.size_ = rounded;
  if (reinterpret_cast<std::uintptr_t>(memory) % kAlignment != 0) {
    return Status(ErrorCode::invalid_input,
                  "the allocator of the host gave memory that is not aligned: asked for a multiple of " +
                      std::to_string(kAlignment) + "; correct the allocator");
  }
  std::memset(memory, 0, rounded);
  return region;
}

AlignedRegion::AlignedRegion(AlignedRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      huge_pages_advised_(std::exchange(other.huge_pages_advised_, false)),
      release_(std::exchange(other.release_, nullptr)) {}

AlignedRegion& AlignedRegion::operator=(AlignedRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(huge_pages_advised_, other.huge_pages_advised_);
  std::swap(release_, other.release_);
  return *this;
}

AlignedRegion::~AlignedRegion() {
  if (data_ == nullptr) return;
  if (release_) {
    release_(data_, size_, kAlignment);
  } else {
    ::munmap(data_, size_);
  }
}

Result<std::span<std::byte>> AlignedRegion::slice(std::uint64_t offset, std::uint64_t length) const {
  const auto end = checked_add(offset, length);
  if (!end || *end > size_) {
    return Status(ErrorCode::invalid_input, "slice leaves the memory region: offset " +
                                                std::to_string(offset) + ", length " +
                                                std::to_string(length) + ", region of " +
                                                std::to_string(size_) + " bytes; stay inside the region");
  }
  return std::span<std::byte>(data_ + offset, length);
}

void AlignedRegion::leak() noexcept {
  data_ = nullptr;
  size_ = 0;
  huge_pages_advised_ = false;
}

}  // namespace colibri
