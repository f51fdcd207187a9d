// Leftmost-longest search without overlaps, with the flags applied to each match as the
// reference does (Hugging Face tokenizers, added_vocabulary.rs).
#include "io/text/added_tokens.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "io/text/utf8.hpp"

namespace colibri {
namespace {

// What \w means to the reference's word borders: letters, marks, decimal and letter digits,
// connectors, the two joiners, and the enclosed letters that are Other_Alphabetic.
bool is_word_character(char32_t value) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
  }
  return value == 0x200C || value == 0x200D || (value >= 0x24B6 && value <= 0x24E9) ||
         (value >= 0x1F130 && value <= 0x1F149) || (value >= 0x1F150 && value <= 0x1F169) ||
         (value >= 0x1F170 && value <= 0x1F189);
}

bool touches_a_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && is_word_character(code_point_before(text, begin).value)) ||
         (end < text.size() && is_word_character(code_point_at(text, end).value));
}

// Where the white space that ends at `end` begins, but never before `limit`: what an earlier
// token has swallowed is gone.
std::size_t skip_white_space_back(std::string_view text, std::size_t end, std::size_t limit) {
  while (end > limit) {
    const CodePoint last = code_point_before(text, end);
    if (!is_white_space(last.value)) break;
    end -= last.length;
  }
  return end;
}

std::size_t skip_white_space(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const CodePoint first = code_point_at(text, begin);
    if (!is_white_space(first.value)) break;
    begin += first.length;
  }
  return begin;
}

}  // namespace

Result<AddedTokens> AddedTokens::build(std::vector<AddedTokenDefinition> definitions,
                                       const Vocabulary& model_vocabulary, const Normalizer& normalizer) {
  AddedTokens added;
  for (std::size_t i = 0; i < definitions.size(); ++i) {
    const AddedTokenDefinition& token = definitions[i];
    // The file's ids are what the model was trained with, so a conflict is an error; the
    // reference would silently number the token anew.
    const auto contradicts = [&](std::int32_t model_id) {
      return Status(ErrorCode::invalid_input, "added token contradicts the vocabulary: added_tokens[" +
                                                  std::to_string(i) + "] '" + token.content + "' has id " +
                                                  std::to_string(token.id) + ", the model has '" +
                                                  std::string(model_vocabulary.text(model_id)) +
                                                  "' with id " + std::to_string(model_id));
    };
    if (token.content.empty()) {
      return Status(ErrorCode::invalid_input,
                    "added token is empty: added_tokens[" + std::to_string(i) + "].content");
    }
    if (const auto id = model_vocabulary.find(token.content); id && *id != token.id) return contradicts(*id);
    if (model_vocabulary.contains(token.id) && model_vocabulary.text(token.id) != token.content) {
      return contradicts(token.id);
    }
    if (Status status = added.vocabulary_.add(token.content, token.id); !status) {
      return std::move(status).at("added_tokens[" + std::to_string(i) + "]");
    }
    if (!token.normalized) {
      added.raw_.insert(token.content, i);
      continue;
    }
    // The search runs over normalized text, so the token has to look as it would look there.
    std::string normalized = token.content;
    COLIBRI_RETURN_IF_ERROR(normalizer.apply(normalized));
    if (!normalized.empty()) added.normalized_.insert(normalized, i);
    if (normalized != token.content) added.normalized_texts_[token.id] = std::move(normalized);
  }
  added.special_.resize(static_cast<std::size_t>(added.vocabulary_.id_limit()));
  for (const AddedTokenDefinition& token : definitions) {
    added.special_[static_cast<std::size_t>(token.id)] = token.special;
  }
  added.tokens_ = std::move(definitions);
  return added;
}

bool AddedTokens::is_special(std::int32_t id) const noexcept {
  return id >= 0 && static_cast<std::size_t>(id) < special_.size() && special_[static_cast<std::size_t>(id)];
}

std::string_view AddedTokens::decoder_text(std::int32_t id) const noexcept {
  const auto found = normalized_texts_.find(id);
  return found == normalized_texts_.end() ? vocabulary_.text(id) : std::string_view(found->second);
}

void AddedTokens::split_raw(std::string_view text, std::vector<Segment>& segments) const {
  split(raw_, text, segments);
}

void AddedTokens::split_normalized(std::string_view text, std::vector<Segment>& segments) const {
  split(normalized_, text, segments);
}

void AddedTokens::split(const Trie& trie, std::string_view text, std::vector<Segment>& segments) const {
  segments.clear();
  std::size_t covered = 0;
  // `at` is where the search goes on, `covered` how far segments reach; rstrip can move the
  // second beyond the first, and then a token found in between still counts.
  for (std::size_t at = 0; at < text.size();) {
    const auto match = trie.longest_at(text, at);
    if (!match) {
      ++at;
      continue;
    }
    const AddedTokenDefinition& token = tokens_[match->token];
    std::size_t begin = at;
    std::size_t end = match->end;
    at = end;  // also when the match is discarded below, and before rstrip
    if (token.single_word && touches_a_word(text, begin, end)) continue;
    if (token.lstrip && begin > covered) begin = skip_white_space_back(text, begin, covered);
    if (token.rstrip) end = skip_white_space(text, end);
    if (covered < begin) segments.push_back({covered, begin, -1});
    segments.push_back({begin, end, token.id});
    covered = end;
  }
  if (covered < text.size()) segments.push_back({covered, text.size(), -1});
}

std::uint32_t AddedTokens::Trie::new_node(char byte) {
  nodes_.push_back({kNone, kNone, kNone, byte});
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

std::uint32_t AddedTokens::Trie::child(std::uint32_t node, char byte) const noexcept {
  std::uint32_t found = nodes_[node].first_child;
  while (found != kNone && nodes_[found].byte != byte) found = nodes_[found].next_sibling;
  return found;
}

void AddedTokens::Trie::insert(std::string_view text, std::size_t token) {
  std::uint32_t& root = roots_[static_cast<std::uint8_t>(text[0])];
  if (root == kNone) root = new_node(text[0]);
  std::uint32_t node = root;
  for (const char byte : text.substr(1)) {
    std::uint32_t next = child(node, byte);
    if (next == kNone) {
      next = new_node(byte);
      nodes_[next].next_sibling = nodes_[node].first_child;
      nodes_[node].first_child = next;
    }
    node = next;
  }
  // Two tokens can become equal by normalization: the first one wins.
  if (nodes_[node].token == kNone) nodes_[node].token = static_cast<std::uint32_t>(token);
}

std::optional<AddedTokens::Trie::Match> AddedTokens::Trie::longest_at(std::string_view text,
                                                                      std::size_t begin) const noexcept {
  std::optional<Match> longest;
  // Walks down as far as the text matches and remembers the last token passed on the way.
  std::uint32_t node = roots_[static_cast<std::uint8_t>(text[begin])];
  for (std::size_t at = begin + 1; node != kNone; ++at) {
    if (nodes_[node].token != kNone) longest = Match{at, nodes_[node].token};
    if (at == text.size()) break;
    node = child(node, text[at]);
  }
  return longest;
}

}  // namespace colibri
