// Integers as little-endian bytes, the order of every binary file of a container.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace colibri {

template <std::unsigned_integral T>
void store_little_endian(T value, std::byte* bytes) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

template <std::unsigned_integral T>
T load_little_endian(const std::byte* bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return static_cast<T>(value);
}

template <std::unsigned_integral T>
void append_little_endian(std::vector<std::byte>& bytes, T value) {
  bytes.resize(bytes.size() + sizeof(T));
  store_little_endian(value, bytes.data() + bytes.size() - sizeof(T));
}

}  // namespace colibri
