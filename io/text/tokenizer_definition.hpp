// What a tokenizer.json says, as plain data: checked for types and supported components,
// not yet for whether its parts fit together. Sequences are flattened into lists of steps.
// This is the border between the JSON file (tokenizer_file) and the machinery (tokenizer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace colibri {

// Real vocabularies end below 300,000; ids index tables, so they must stay bounded.
inline constexpr std::int32_t kMaxTokenIds = 1 << 21;

struct PatternDefinition {
  bool is_regex = false;
  std::string text;
};

struct AddedTokenDefinition {
  std::int32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // swallows white space before it
  bool rstrip = false;       // swallows white space after it
  bool normalized = false;   // looked for in normalized text instead of raw text
};

enum class NormalizerKind : std::uint8_t { nfc, nfd, nfkc, nfkd, prepend, replace, strip };

struct NormalizerStep {
  NormalizerKind kind = NormalizerKind::nfc;
  std::string content;        // prepend, replace
  PatternDefinition pattern;  // replace
  bool strip_left = false;
  bool strip_right = false;
};

enum class PreTokenizerKind : std::uint8_t { split, byte_level, digits, metaspace };
enum class SplitBehavior : std::uint8_t {
  isolated,
  removed,
  merged_with_previous,
  merged_with_next,
  contiguous
};
enum class PrependScheme : std::uint8_t { never, first, always };

struct PreTokenizerStep {
  PreTokenizerKind kind = PreTokenizerKind::split;
  PatternDefinition pattern;  // split
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;             // split: gaps and matches change places
  bool add_prefix_space = false;   // byte_level
  bool use_regex = false;          // byte_level: split with the GPT-2 pattern
  bool individual_digits = false;  // digits
  std::string replacement;         // metaspace: the one character that stands for a space
  PrependScheme prepend_scheme = PrependScheme::never;
  bool split = false;  // metaspace
};

enum class DecoderKind : std::uint8_t { byte_level, replace, byte_fallback, fuse, strip, metaspace };

struct DecoderStep {
  DecoderKind kind = DecoderKind::fuse;
  PatternDefinition pattern;  // replace
  std::string content;        // replace: new text; strip, metaspace: one character
  std::size_t strip_start = 0;
  std::size_t strip_stop = 0;
  bool drop_first_space = false;  // metaspace
};

struct VocabularyEntry {
  std::string text;
  std::int32_t id = 0;
};

struct MergeDefinition {
  std::string left;
  std::string right;
};

struct BpeDefinition {
  std::vector<VocabularyEntry> vocabulary;
  std::vector<MergeDefinition> merges;  // best first
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};

struct TokenizerDefinition {
  std::vector<AddedTokenDefinition> added_tokens;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  BpeDefinition model;
  // Special tokens that the post-processor puts around a single sequence.
  std::vector<std::int32_t> template_prefix;
  std::vector<std::int32_t> template_suffix;
  // nullopt: no decoder, tokens are joined by spaces.
  std::optional<std::vector<DecoderStep>> decoder;
};

}  // namespace colibri
