// Checksums of a container: xxh3-64 for chunks and tables, SHA-256 for files and the spec.
//
// Streams exist because records and files are hashed while they pass through, never held whole.
// A Sha256Stream can be copied: the converter takes a copy before it re-reads a record that a
// former run wrote, and goes back to the copy when the record turns out to be damaged.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace colibri {

using Sha256Digest = std::array<std::uint8_t, 32>;

// xxh3-64 with seed 0 (https://xxhash.com).
std::uint64_t xxh3_64(std::span<const std::byte> bytes) noexcept;

class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;

  void reset() noexcept;
  void update(std::span<const std::byte> bytes) noexcept;
  std::uint64_t digest() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream& other);
  Sha256Stream& operator=(const Sha256Stream& other);

  void update(std::span<const std::byte> bytes) noexcept;
  // The digest of all bytes so far; more may follow.
  Sha256Digest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
std::string to_hex(const Sha256Digest& digest);

}  // namespace colibri
