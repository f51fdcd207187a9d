// The checksum of expert records: xxh3-64, one per chunk.
//
// Written by the converter into the page table and checked as the bytes arrive, so the
// hash and its seed live in one place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace colibri {

// xxh3-64 with seed 0 (https://xxhash.com).
std::uint64_t chunk_checksum(std::span<const std::byte> chunk) noexcept;

}  // namespace colibri
