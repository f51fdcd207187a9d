// The order of merges, and the corner cases of unknown characters, follow the reference
// implementation (Hugging Face tokenizers, models/bpe) step by step: any other order that
// looks equivalent differs on some text.
#include "io/text/bpe_model.hpp"

#include <algorithm>
#include <string>

#include "io/text/utf8.hpp"

namespace colibri {
namespace {

std::string byte_token(unsigned byte) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

Status unknown_in_merge(std::size_t rank, const MergeDefinition& merge, std::string_view missing) {
  return {ErrorCode::invalid_input, "merge names a token that is not in the vocabulary: model.merges[" +
                                        std::to_string(rank) + "] ('" + merge.left + "', '" + merge.right +
                                        "') needs '" + std::string(missing) + "'"};
}

}  // namespace

Result<BpeModel> BpeModel::build(const BpeDefinition& definition) {
  BpeModel model;
  for (const VocabularyEntry& entry : definition.vocabulary) {
    COLIBRI_RETURN_IF_ERROR(model.vocabulary_.add(entry.text, entry.id));
  }
  const Vocabulary& vocabulary = model.vocabulary_;

  model.merges_.reserve(definition.merges.size());
  for (std::size_t rank = 0; rank < definition.merges.size(); ++rank) {
    const MergeDefinition& merge = definition.merges[rank];
    const auto left = vocabulary.find(merge.left);
    if (!left) return unknown_in_merge(rank, merge, merge.left);
    const auto right = vocabulary.find(merge.right);
    if (!right) return unknown_in_merge(rank, merge, merge.right);
    // The merged id is resolved once here: merging then works on ids alone.
    const auto merged = vocabulary.find(merge.left + merge.right);
    if (!merged) return unknown_in_merge(rank, merge, merge.left + merge.right);
    model.merges_.set(*left, *right, {static_cast<std::uint32_t>(rank), *merged});
  }

  if (definition.unk_token) {
    model.unk_id_ = vocabulary.find(*definition.unk_token);
    if (!model.unk_id_) {
      return Status(ErrorCode::invalid_input, "unknown token is not in the vocabulary: model.unk_token '" +
                                                  *definition.unk_token + "'");
    }
  }
  // Nearly all characters of nearly all texts; saves a hash of each.
  for (unsigned byte = 0; byte < 128; ++byte) {
    const char character = static_cast<char>(byte);
    model.ascii_ids_[byte] = vocabulary.find(std::string_view(&character, 1)).value_or(-1);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    model.fallback_ids_[byte] =
        definition.byte_fallback ? vocabulary.find(byte_token(byte)).value_or(-1) : -1;
  }
  model.fuse_unk_ = definition.fuse_unk;
  model.ignore_merges_ = definition.ignore_merges;
  return model;
}

void BpeModel::encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  if (ignore_merges_) {
    if (const auto id = vocabulary_.find(word)) {
      ids.push_back(*id);
      return;
    }
  }
  split_characters(word, scratch.symbols);
  merge(scratch);
  for (const Scratch::Symbol& symbol : scratch.symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
}

std::optional<std::int32_t> BpeModel::character_id(std::string_view character) const {
  if (character.size() > 1) return vocabulary_.find(character);
  const std::int32_t id = ascii_ids_[static_cast<std::uint8_t>(character[0])];
  return id < 0 ? std::nullopt : std::optional(id);
}

void BpeModel::split_characters(std::string_view word, std::vector<Scratch::Symbol>& symbols) const {
  symbols.clear();
  const auto add = [&](std::int32_t id) {
    const auto position = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, position - 1, position + 1});
  };
  const auto has_fallback = [&](char byte) { return fallback_ids_[static_cast<std::uint8_t>(byte)] >= 0; };

  bool unk_pending = false;  // an unknown character is only written once the next known one comes
  for (std::size_t offset = 0; offset < word.size();) {
    const std::string_view character = word.substr(offset, code_point_at(word, offset).length);
    offset += character.size();
    if (const auto id = character_id(character)) {
      if (unk_pending) add(*unk_id_);
      unk_pending = false;
      add(*id);
      // All bytes of the character need a token; a known part alone is not used. An unknown
      // token that is still pending stays pending behind these bytes, as in the reference.
    } else if (std::all_of(character.begin(), character.end(), has_fallback)) {
      for (const char byte : character) add(fallback_ids_[static_cast<std::uint8_t>(byte)]);
    } else if (unk_id_) {
      if (unk_pending && !fuse_unk_) add(*unk_id_);
      unk_pending = true;
    }
    // Without an unknown token the character is dropped, as the reference does.
  }
  if (unk_pending) add(*unk_id_);
  if (!symbols.empty()) symbols.back().next = -1;
}

void BpeModel::offer(Scratch& scratch, std::int32_t left, std::int32_t right) const {
  const auto& symbols = scratch.symbols;
  // One comparison orders by rank and then from left to right.
  const MergeTable::Rule* rule = merges_.find(symbols[left].id, symbols[right].id);
  if (!rule) return;
  const std::uint64_t priority = (std::uint64_t{rule->rank} << 32) | static_cast<std::uint32_t>(left);
  scratch.queue.push_back({priority, rule->merged_id});
}

void BpeModel::merge(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.priority > b.priority;
  };
  const auto offer_and_sift = [&](std::int32_t left, std::int32_t right) {
    const std::size_t size_before = queue.size();
    offer(scratch, left, right);
    if (queue.size() > size_before) std::push_heap(queue.begin(), queue.end(), later);
  };

  queue.clear();
  for (std::int32_t right = 1; right < static_cast<std::int32_t>(symbols.size()); ++right) {
    offer(scratch, right - 1, right);
  }
  // Building the heap at once is linear; each merge then adds at most two entries.
  std::make_heap(queue.begin(), queue.end(), later);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    const Scratch::Candidate top = queue.back();
    queue.pop_back();
    const auto position = static_cast<std::int32_t>(top.priority & 0xFFFFFFFFu);
    auto& left = symbols[position];
    if (left.id < 0 || left.next < 0) continue;
    auto& right = symbols[left.next];
    // An entry is stale once a neighbour has changed; it still counts if the new pair
    // happens to merge into the same token.
    const MergeTable::Rule* rule = merges_.find(left.id, right.id);
    if (!rule || rule->merged_id != top.merged_id) continue;

    // The left symbol takes over; the right one stays in place as a gap of the linked list,
    // so positions in the queue remain valid.
    left.id = top.merged_id;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = position;
    if (left.previous >= 0) offer_and_sift(left.previous, position);
    if (left.next >= 0) offer_and_sift(position, left.next);
  }
}

}  // namespace colibri
