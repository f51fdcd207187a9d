// xxhash and OpenSSL behind the container's own names.
#include "io/container/checksum.hpp"

#include <openssl/evp.h>
#include <xxhash.h>

#include <new>

namespace colibri {

std::uint64_t xxh3_64(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct Xxh3Stream::State {
  XXH3_state_t* state = XXH3_createState();
  State() {
    if (state == nullptr) throw std::bad_alloc();
  }
  ~State() { XXH3_freeState(state); }
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) { reset(); }
Xxh3Stream::~Xxh3Stream() = default;
void Xxh3Stream::reset() noexcept { XXH3_64bits_reset(state_->state); }
void Xxh3Stream::update(std::span<const std::byte> bytes) noexcept {
  XXH3_64bits_update(state_->state, bytes.data(), bytes.size());
}
std::uint64_t Xxh3Stream::digest() const noexcept { return XXH3_64bits_digest(state_->state); }

struct Sha256Stream::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() {
    if (context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1) return;
    EVP_MD_CTX_free(context);
    throw std::bad_alloc();
  }
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256Stream::Sha256Stream() : state_(std::make_unique<State>()) {}
Sha256Stream::~Sha256Stream() = default;
Sha256Stream::Sha256Stream(const Sha256Stream& other) : state_(std::make_unique<State>()) { *this = other; }
Sha256Stream& Sha256Stream::operator=(const Sha256Stream& other) {
  if (this != &other && EVP_MD_CTX_copy_ex(state_->context, other.state_->context) != 1)
    throw std::bad_alloc();
  return *this;
}
void Sha256Stream::update(std::span<const std::byte> bytes) noexcept {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}
Sha256Digest Sha256Stream::digest() const {
  const Sha256Stream finished(*this);  // finalising ends a context, so it is done on a copy
  Sha256Digest digest{};
  EVP_DigestFinal_ex(finished.state_->context, digest.data(), nullptr);
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256Stream stream;
  stream.update(bytes);
  return stream.digest();
}

std::string to_hex(const Sha256Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const std::uint8_t byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace colibri
