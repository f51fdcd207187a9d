#include "io/read/chunk_checksum.hpp"

#include <xxhash.h>

namespace colibri {

std::uint64_t chunk_checksum(std::span<const std::byte> chunk) noexcept {
  return XXH3_64bits(chunk.data(), chunk.size());
}

}  // namespace colibri
