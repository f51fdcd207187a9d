#include "io/text/content_hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace colibri {

struct StreamHash128::State {
  XXH3_state_t xxh3;
};

std::uint64_t content_hash64(std::string_view bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Hash128 content_hash128(std::string_view bytes) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

StreamHash128::StreamHash128() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh3); }
StreamHash128::~StreamHash128() = default;
StreamHash128::StreamHash128(StreamHash128&&) noexcept = default;
StreamHash128& StreamHash128::operator=(StreamHash128&&) noexcept = default;

void StreamHash128::update(std::string_view bytes) noexcept {
  XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

Hash128 StreamHash128::digest() const noexcept {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh3);
  return {hash.high64, hash.low64};
}

}  // namespace colibri
