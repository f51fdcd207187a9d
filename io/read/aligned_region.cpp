#include "io/read/aligned_region.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

namespace colibri {

Result<AlignedRegion> AlignedRegion::create(std::uint64_t bytes) {
  if (bytes == 0) {
    return Status(ErrorCode::invalid_input, "memory region is empty: 0 bytes; ask for at least 1");
  }
  const auto rounded = checked_round_up<std::uint64_t>(bytes, kAlignment);
  const auto mapped = rounded ? checked_add<std::uint64_t>(*rounded, kAlignment) : std::nullopt;
  if (!mapped || *mapped > static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max())) {
    return Status(ErrorCode::out_of_memory, "memory region exceeds the address space: " +
                                                std::to_string(bytes) + " bytes; ask for less memory");
  }
  // Map one alignment more than needed and give back what lies outside the aligned part.
  void* base = ::mmap(nullptr, *mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
  ::munmap(begin + head + *rounded, kAlignment - head);
  const bool advised = ::madvise(begin + head, *rounded, MADV_HUGEPAGE) == 0;
  return AlignedRegion(begin + head, *rounded, advised);
}

AlignedRegion::AlignedRegion(AlignedRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      huge_pages_advised_(std::exchange(other.huge_pages_advised_, false)) {}

AlignedRegion& AlignedRegion::operator=(AlignedRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(huge_pages_advised_, other.huge_pages_advised_);
  return *this;
}

AlignedRegion::~AlignedRegion() {
  if (data_ != nullptr) ::munmap(data_, size_);
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
