// Checksums against published vectors, the hash tree against its recursive definition.
#include "io/container/checksum.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "io/container/hash_tree.hpp"

namespace colibri {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// FIPS 180-4 examples.
TEST(Checksum, Sha256Vectors) {
  EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// XXH3_64bits of nothing, from the xxHash specification's test vectors.
TEST(Checksum, Xxh3OfNothing) { EXPECT_EQ(xxh3_64({}), 0x2d06800538d394c2ULL); }

TEST(Checksum, StreamsEqualOneShot) {
  std::vector<std::byte> data(100'003);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31 + (i >> 8));
  Xxh3Stream xxh3;
  Sha256Stream sha;
  for (std::size_t begin = 0, step = 1; begin < data.size(); begin += step, step = step * 3 % 4099 + 1) {
    const auto piece = std::span(data).subspan(begin, std::min(step, data.size() - begin));
    xxh3.update(piece);
    sha.update(piece);
    EXPECT_EQ(sha.digest(), sha.digest());  // asking does not end the stream
  }
  EXPECT_EQ(xxh3.digest(), xxh3_64(data));
  EXPECT_EQ(sha.digest(), sha256(data));
  const Sha256Stream copy = sha;
  sha.update(data);
  EXPECT_EQ(copy.digest(), sha256(data));
  EXPECT_NE(sha.digest(), copy.digest());
}

Sha256Digest leaf(std::uint32_t layer, std::uint32_t expert, const std::vector<std::uint64_t>& hashes) {
  std::vector<std::byte> bytes{std::byte{0}};
  const auto put = [&bytes](std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
  };
  put(layer, 4);
  put(expert, 4);
  for (const std::uint64_t hash : hashes) put(hash, 8);
  return sha256(bytes);
}

// Level by level, as the header defines it.
Sha256Digest root_by_levels(std::vector<Sha256Digest> level) {
  while (level.size() > 1) {
    std::vector<Sha256Digest> next;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) {
      std::vector<std::byte> bytes{std::byte{1}};
      for (const Sha256Digest& digest : {level[i], level[i + 1]}) {
        for (const std::uint8_t byte : digest) bytes.push_back(static_cast<std::byte>(byte));
      }
      next.push_back(sha256(bytes));
    }
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = std::move(next);
  }
  return level.front();
}

TEST(HashTree, EqualsItsDefinition) {
  HashTree tree;
  EXPECT_EQ(tree.root(), sha256({}));
  std::vector<Sha256Digest> leaves;
  for (std::uint32_t i = 0; i < 70; ++i) {
    const std::vector<std::uint64_t> hashes{i * 0x9e3779b97f4a7c15ULL, ~std::uint64_t{i}};
    tree.add_record(i / 8, i % 8, hashes);
    leaves.push_back(leaf(i / 8, i % 8, hashes));
    ASSERT_EQ(tree.root(), root_by_levels(leaves)) << i;
    ASSERT_EQ(tree.records(), leaves.size());
  }
}

}  // namespace
}  // namespace colibri
