// Linear probing with the hash kept beside the id, so that a miss rarely touches the texts.
#include "io/text/vocabulary.hpp"

#include <functional>
#include <limits>
#include <utility>

#include "io/text/tokenizer_definition.hpp"

namespace colibri {
namespace {

constexpr std::size_t kFirstBuckets = 64;

// Folded to 32 bits; compared before the texts are.
std::uint32_t hash_of(std::string_view text) noexcept {
  const std::uint64_t hash = std::hash<std::string_view>{}(text);
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

}  // namespace

Status Vocabulary::add(std::string_view text, std::int32_t id) {
  if (id < 0 || id >= kMaxTokenIds) {
    return {ErrorCode::invalid_input, "token id is out of range: '" + std::string(text) + "' has " +
                                          std::to_string(id) + "; expected 0 to " +
                                          std::to_string(kMaxTokenIds - 1)};
  }
  if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
    return {ErrorCode::invalid_input, "token text is too long: id " + std::to_string(id)};
  }
  // Duplicates would make decoding and encoding disagree, whichever entry won.
  if (contains(id)) {
    return {ErrorCode::invalid_input, "token id is given twice: " + std::to_string(id) + " for '" +
                                          std::string(this->text(id)) + "' and '" + std::string(text) + "'"};
  }
  // At most half full: probing stays short and always finds a free bucket.
  if (2 * (count_ + 1) > buckets_.size()) grow();
  const std::uint32_t hash = hash_of(text);
  Bucket& bucket = buckets_[bucket_of(text, hash)];
  if (bucket.id >= 0) {
    return {ErrorCode::invalid_input, "token text is given twice: '" + std::string(text) + "' for ids " +
                                          std::to_string(bucket.id) + " and " + std::to_string(id)};
  }
  bucket = {hash, id};
  if (id >= id_limit()) entries_.resize(static_cast<std::size_t>(id) + 1);
  entries_[static_cast<std::size_t>(id)] = {texts_.size(), static_cast<std::uint32_t>(text.size()), true};
  texts_ += text;
  ++count_;
  return Status::ok();
}

std::optional<std::int32_t> Vocabulary::find(std::string_view text) const noexcept {
  if (buckets_.empty()) return std::nullopt;
  const std::int32_t id = buckets_[bucket_of(text, hash_of(text))].id;
  return id < 0 ? std::nullopt : std::optional(id);
}

bool Vocabulary::contains(std::int32_t id) const noexcept {
  return id >= 0 && id < id_limit() && entries_[static_cast<std::size_t>(id)].present;
}

std::string_view Vocabulary::text(std::int32_t id) const noexcept {
  if (!contains(id)) return {};
  const Entry& entry = entries_[static_cast<std::size_t>(id)];
  return std::string_view(texts_).substr(entry.begin, entry.length);
}

std::size_t Vocabulary::bucket_of(std::string_view text, std::uint32_t hash) const noexcept {
  const std::size_t mask = buckets_.size() - 1;
  std::size_t index = hash & mask;
  while (buckets_[index].id >= 0 &&
         (buckets_[index].hash != hash || this->text(buckets_[index].id) != text)) {
    index = (index + 1) & mask;
  }
  return index;
}

void Vocabulary::grow() {
  const std::vector<Bucket> old =
      std::exchange(buckets_, std::vector<Bucket>(buckets_.empty() ? kFirstBuckets : 2 * buckets_.size()));
  const std::size_t mask = buckets_.size() - 1;
  for (const Bucket& bucket : old) {
    if (bucket.id < 0) continue;
    std::size_t index = bucket.hash & mask;
    while (buckets_[index].id >= 0) index = (index + 1) & mask;
    buckets_[index] = bucket;
  }
}

}  // namespace colibri
