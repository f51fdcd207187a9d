// Hashes of content: xxh3, which is fast enough to hash everything that passes through.
// They find accidents (torn writes, flipped bits, another input), not attacks.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string_view>

namespace colibri {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

std::uint64_t content_hash64(std::string_view bytes) noexcept;
Hash128 content_hash128(std::string_view bytes) noexcept;

// The 128-bit hash of bytes that arrive in pieces; equal to that of the whole.
class StreamHash128 {
 public:
  StreamHash128();
  ~StreamHash128();
  StreamHash128(StreamHash128&&) noexcept;
  StreamHash128& operator=(StreamHash128&&) noexcept;
  void update(std::string_view bytes) noexcept;
  Hash128 digest() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace colibri
