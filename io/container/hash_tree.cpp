// A Merkle tree kept as a binary counter of complete subtrees.
#include "io/container/hash_tree.hpp"

#include "io/container/little_endian.hpp"

namespace colibri {
namespace {

constexpr std::byte kLeafMark{0};
constexpr std::byte kInnerMark{1};

Sha256Digest inner_node(const Sha256Digest& left, const Sha256Digest& right) {
  Sha256Stream stream;
  stream.update(std::span(&kInnerMark, 1));
  stream.update(std::as_bytes(std::span(left)));
  stream.update(std::as_bytes(std::span(right)));
  return stream.digest();
}

}  // namespace

void HashTree::add_record(std::uint32_t layer, std::uint32_t expert,
                          std::span<const std::uint64_t> chunk_hashes) {
  std::vector<std::byte> leaf;
  leaf.push_back(kLeafMark);
  append_little_endian(leaf, layer);
  append_little_endian(leaf, expert);
  for (const std::uint64_t hash : chunk_hashes) append_little_endian(leaf, hash);
  Subtree subtree{0, sha256(leaf)};
  while (!subtrees_.empty() && subtrees_.back().level == subtree.level) {
    subtree = {subtree.level + 1, inner_node(subtrees_.back().digest, subtree.digest)};
    subtrees_.pop_back();
  }
  subtrees_.push_back(subtree);
  ++records_;
}

Sha256Digest HashTree::root() const {
  if (subtrees_.empty()) return sha256({});
  // From the smallest subtree up: an odd node is handed up until it meets a left sibling.
  Sha256Digest root = subtrees_.back().digest;
  for (std::size_t i = subtrees_.size() - 1; i-- > 0;) root = inner_node(subtrees_[i].digest, root);
  return root;
}

}  // namespace colibri
