// The hash tree over the chunk hashes of all expert records; its root is in manifest.json.
//
//   leaf  = SHA-256(0x00, layer u32, expert u32, the record's chunk hashes u64...)   little-endian
//   inner = SHA-256(0x01, left digest, right digest)
// Leaves are in (layer, expert) order; a level with an odd number of nodes hands its last one up
// unchanged. The tree of one leaf is that leaf. With the root, one record can be proven without
// the rest of the file. Built in one pass with one digest per level in memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/container/checksum.hpp"

namespace colibri {

class HashTree {
 public:
  void add_record(std::uint32_t layer, std::uint32_t expert, std::span<const std::uint64_t> chunk_hashes);
  std::uint64_t records() const noexcept { return records_; }
  // Root over the records so far; SHA-256 of nothing when there are none.
  Sha256Digest root() const;

 private:
  // A complete subtree of 2^level leaves, as in a binary counter: levels strictly decrease.
  struct Subtree {
    std::uint32_t level;
    Sha256Digest digest;
  };
  std::vector<Subtree> subtrees_;
  std::uint64_t records_ = 0;
};

}  // namespace colibri
