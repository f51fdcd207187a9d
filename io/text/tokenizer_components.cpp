// Each component is an object with a "type"; a Sequence holds a list of them. The readers
// are one table a component: name of the type, function that reads its fields.
#include "io/text/tokenizer_components.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "io/text/utf8.hpp"

namespace colibri {
namespace {

constexpr int kMaxSequenceDepth = 16;
constexpr std::int64_t kMaxStripCount = 1 << 20;

// A supported type and the function that appends its steps.
template <class Steps>
struct Reader {
  std::string_view type;
  Status (*read)(const JsonCursor& json, Steps& steps);
};

// Lists what is supported from the same table that does the reading.
template <class Steps, std::size_t count>
Status unsupported(const JsonCursor& json, const std::string& type,
                   const std::array<Reader<Steps>, count>& readers) {
  std::string names = "Sequence";
  for (const auto& reader : readers) names += ", " + std::string(reader.type);
  return {ErrorCode::unsupported,
          json["type"].path() + " '" + type + "' is not supported; supported: " + names};
}

// Appends the steps of a component, those of a Sequence (its list is under `list_key`) in order.
template <class Steps, std::size_t count>
Status read_component(const JsonCursor& json, std::string_view list_key,
                      const std::array<Reader<Steps>, count>& readers, Steps& steps, int depth = 0) {
  COLIBRI_RETURN_IF_ERROR(json.expect_object());
  const Result<std::string> type = json["type"].string();
  if (!type) return type.status();
  if (*type == "Sequence") {
    // The file decides how deep it nests, the stack must not.
    if (depth == kMaxSequenceDepth) {
      return {ErrorCode::unsupported, json.path() + " nests more than " + std::to_string(kMaxSequenceDepth) +
                                          " sequences; flatten them"};
    }
    COLIBRI_ASSIGN_OR_RETURN(const std::vector<JsonCursor> elements, json[list_key].elements());
    for (const JsonCursor& element : elements) {
      COLIBRI_RETURN_IF_ERROR(read_component(element, list_key, readers, steps, depth + 1));
    }
    return Status::ok();
  }
  for (const auto& reader : readers) {
    if (reader.type == *type) return reader.read(json, steps);
  }
  return unsupported(json, *type, readers);
}

// {"String": "..."} or {"Regex": "..."}
Result<PatternDefinition> read_pattern(const JsonCursor& json) {
  COLIBRI_RETURN_IF_ERROR(json.expect_object());
  // Neither of the two is reported as a missing String, the commoner one.
  const bool is_regex = json["Regex"].exists();
  COLIBRI_ASSIGN_OR_RETURN(std::string text, json[is_regex ? "Regex" : "String"].string());
  return PatternDefinition{is_regex, std::move(text)};
}

// Where the reference has a char: exactly one code point.
Result<std::string> read_character(const JsonCursor& json) {
  COLIBRI_ASSIGN_OR_RETURN(std::string text, json.string());
  if (text.empty() || code_point_at(text, 0).length != text.size()) {
    return Status(ErrorCode::invalid_input, json.path() + " is '" + text + "'; expected one character");
  }
  return text;
}

// Old files write add_prefix_space instead of prepend_scheme.
Result<PrependScheme> read_prepend_scheme(const JsonCursor& json) {
  if (!json["prepend_scheme"].exists()) {
    COLIBRI_ASSIGN_OR_RETURN(const bool add_prefix_space, json["add_prefix_space"].boolean_or(true));
    return add_prefix_space ? PrependScheme::always : PrependScheme::never;
  }
  COLIBRI_ASSIGN_OR_RETURN(const std::string scheme, json["prepend_scheme"].string());
  if (scheme == "always") return PrependScheme::always;
  if (scheme == "first") return PrependScheme::first;
  if (scheme == "never") return PrependScheme::never;
  return Status(ErrorCode::unsupported, json["prepend_scheme"].path() + " '" + scheme +
                                            "' is not supported; supported: always, first, never");
}

// --- normalizer ---

using NormalizerSteps = std::vector<NormalizerStep>;

template <NormalizerKind kind>
Status read_plain_normalizer(const JsonCursor&, NormalizerSteps& steps) {
  steps.push_back({.kind = kind});
  return Status::ok();
}

Status read_prepend(const JsonCursor& json, NormalizerSteps& steps) {
  COLIBRI_ASSIGN_OR_RETURN(std::string content, json["prepend"].string());
  steps.push_back({.kind = NormalizerKind::prepend, .content = std::move(content)});
  return Status::ok();
}

Status read_replace_normalizer(const JsonCursor& json, NormalizerSteps& steps) {
  COLIBRI_ASSIGN_OR_RETURN(PatternDefinition pattern, read_pattern(json["pattern"]));
  COLIBRI_ASSIGN_OR_RETURN(std::string content, json["content"].string());
  steps.push_back(
      {.kind = NormalizerKind::replace, .content = std::move(content), .pattern = std::move(pattern)});
  return Status::ok();
}

Status read_strip_normalizer(const JsonCursor& json, NormalizerSteps& steps) {
  COLIBRI_ASSIGN_OR_RETURN(const bool left, json["strip_left"].boolean());
  COLIBRI_ASSIGN_OR_RETURN(const bool right, json["strip_right"].boolean());
  steps.push_back({.kind = NormalizerKind::strip, .strip_left = left, .strip_right = right});
  return Status::ok();
}

constexpr std::array<Reader<NormalizerSteps>, 7> kNormalizers = {{
    {"NFC", read_plain_normalizer<NormalizerKind::nfc>},
    {"NFD", read_plain_normalizer<NormalizerKind::nfd>},
    {"NFKC", read_plain_normalizer<NormalizerKind::nfkc>},
    {"NFKD", read_plain_normalizer<NormalizerKind::nfkd>},
    {"Prepend", read_prepend},
    {"Replace", read_replace_normalizer},
    {"Strip", read_strip_normalizer},
}};

// --- pre_tokenizer ---

using PreTokenizerSteps = std::vector<PreTokenizerStep>;

Status read_split(const JsonCursor& json, PreTokenizerSteps& steps) {
  static constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors = {{
      {"Isolated", SplitBehavior::isolated},
      {"Removed", SplitBehavior::removed},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous},
  }};
  PreTokenizerStep step{.kind = PreTokenizerKind::split};
  COLIBRI_ASSIGN_OR_RETURN(step.pattern, read_pattern(json["pattern"]));
  COLIBRI_ASSIGN_OR_RETURN(const std::string behavior, json["behavior"].string());
  COLIBRI_ASSIGN_OR_RETURN(step.invert, json["invert"].boolean());
  const auto* found = std::find_if(kBehaviors.begin(), kBehaviors.end(),
                                   [&](const auto& candidate) { return candidate.first == behavior; });
  if (found == kBehaviors.end()) {
    return {ErrorCode::unsupported, json["behavior"].path() + " '" + behavior +
                                        "' is not supported; supported: Isolated, Removed, "
                                        "MergedWithPrevious, MergedWithNext, Contiguous"};
  }
  step.behavior = found->second;
  steps.push_back(std::move(step));
  return Status::ok();
}

Status read_byte_level(const JsonCursor& json, PreTokenizerSteps& steps) {
  PreTokenizerStep step{.kind = PreTokenizerKind::byte_level};
  COLIBRI_ASSIGN_OR_RETURN(step.add_prefix_space, json["add_prefix_space"].boolean());
  // The one optional field: files from before it existed always split.
  COLIBRI_ASSIGN_OR_RETURN(step.use_regex, json["use_regex"].boolean_or(true));
  steps.push_back(std::move(step));
  return Status::ok();
}

Status read_digits(const JsonCursor& json, PreTokenizerSteps& steps) {
  PreTokenizerStep step{.kind = PreTokenizerKind::digits};
  COLIBRI_ASSIGN_OR_RETURN(step.individual_digits, json["individual_digits"].boolean());
  steps.push_back(std::move(step));
  return Status::ok();
}

Status read_metaspace(const JsonCursor& json, PreTokenizerSteps& steps) {
  PreTokenizerStep step{.kind = PreTokenizerKind::metaspace};
  COLIBRI_ASSIGN_OR_RETURN(step.replacement, read_character(json["replacement"]));
  COLIBRI_ASSIGN_OR_RETURN(step.prepend_scheme, read_prepend_scheme(json));
  COLIBRI_ASSIGN_OR_RETURN(step.split, json["split"].boolean_or(true));
  steps.push_back(std::move(step));
  return Status::ok();
}

constexpr std::array<Reader<PreTokenizerSteps>, 4> kPreTokenizers = {{
    {"Split", read_split},
    {"ByteLevel", read_byte_level},
    {"Digits", read_digits},
    {"Metaspace", read_metaspace},
}};

// --- decoder ---

using DecoderSteps = std::vector<DecoderStep>;

template <DecoderKind kind>
Status read_plain_decoder(const JsonCursor&, DecoderSteps& steps) {
  steps.push_back({.kind = kind});
  return Status::ok();
}

Status read_replace_decoder(const JsonCursor& json, DecoderSteps& steps) {
  COLIBRI_ASSIGN_OR_RETURN(PatternDefinition pattern, read_pattern(json["pattern"]));
  COLIBRI_ASSIGN_OR_RETURN(std::string content, json["content"].string());
  steps.push_back(
      {.kind = DecoderKind::replace, .pattern = std::move(pattern), .content = std::move(content)});
  return Status::ok();
}

Status read_strip_decoder(const JsonCursor& json, DecoderSteps& steps) {
  COLIBRI_ASSIGN_OR_RETURN(std::string content, read_character(json["content"]));
  COLIBRI_ASSIGN_OR_RETURN(const std::int64_t start, json["start"].integer(0, kMaxStripCount));
  COLIBRI_ASSIGN_OR_RETURN(const std::int64_t stop, json["stop"].integer(0, kMaxStripCount));
  steps.push_back({.kind = DecoderKind::strip,
                   .content = std::move(content),
                   .strip_start = static_cast<std::size_t>(start),
                   .strip_stop = static_cast<std::size_t>(stop)});
  return Status::ok();
}

Status read_metaspace_decoder(const JsonCursor& json, DecoderSteps& steps) {
  COLIBRI_ASSIGN_OR_RETURN(std::string replacement, read_character(json["replacement"]));
  COLIBRI_ASSIGN_OR_RETURN(const PrependScheme scheme, read_prepend_scheme(json));
  steps.push_back({.kind = DecoderKind::metaspace,
                   .content = std::move(replacement),
                   .drop_first_space = scheme != PrependScheme::never});
  return Status::ok();
}

constexpr std::array<Reader<DecoderSteps>, 6> kDecoders = {{
    {"ByteLevel", read_plain_decoder<DecoderKind::byte_level>},
    {"ByteFallback", read_plain_decoder<DecoderKind::byte_fallback>},
    {"Fuse", read_plain_decoder<DecoderKind::fuse>},
    {"Replace", read_replace_decoder},
    {"Strip", read_strip_decoder},
    {"Metaspace", read_metaspace_decoder},
}};

// --- post_processor ---

struct Surroundings {
  std::vector<std::int32_t> prefix;
  std::vector<std::int32_t> suffix;
};

// Appends the ids of one special token of a template.
Status read_special_token(const JsonCursor& piece, const JsonCursor& special_tokens,
                          std::vector<std::int32_t>& ids) {
  COLIBRI_ASSIGN_OR_RETURN(const std::string name, piece["id"].string());
  COLIBRI_ASSIGN_OR_RETURN(const std::vector<JsonCursor> elements, special_tokens[name]["ids"].elements());
  for (const JsonCursor& element : elements) {
    COLIBRI_ASSIGN_OR_RETURN(const std::int64_t id, element.integer(0, kMaxTokenIds - 1));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return Status::ok();
}

Status read_template(const JsonCursor& json, Surroundings& around) {
  COLIBRI_ASSIGN_OR_RETURN(const std::vector<JsonCursor> pieces, json["single"].elements());
  // Special tokens in front of the sequence go to the prefix, those behind it to the suffix.
  Surroundings inner;
  int sequences = 0;
  for (const JsonCursor& piece : pieces) {
    if (const JsonCursor special = piece["SpecialToken"]; special.exists()) {
      COLIBRI_RETURN_IF_ERROR(
          read_special_token(special, json["special_tokens"], sequences == 0 ? inner.prefix : inner.suffix));
      continue;
    }
    const Result<std::string> sequence = piece["Sequence"]["id"].string();
    if (!sequence) return sequence.status();
    // A sequence B has no text here, so it makes the template unusable like a second A.
    sequences += *sequence == "A" ? 1 : 2;
  }
  if (sequences != 1) {
    return {ErrorCode::unsupported,
            json["single"].path() + " does not hold sequence A exactly once and no other sequence"};
  }
  // A later post-processor wraps the earlier ones.
  around.prefix.insert(around.prefix.begin(), inner.prefix.begin(), inner.prefix.end());
  around.suffix.insert(around.suffix.end(), inner.suffix.begin(), inner.suffix.end());
  return Status::ok();
}

// Only moves character offsets, which nobody asks for here.
Status read_byte_level_post_processor(const JsonCursor&, Surroundings&) { return Status::ok(); }

constexpr std::array<Reader<Surroundings>, 2> kPostProcessors = {{
    {"TemplateProcessing", read_template},
    {"ByteLevel", read_byte_level_post_processor},
}};

}  // namespace

Result<std::vector<NormalizerStep>> read_normalizer(const JsonCursor& json) {
  NormalizerSteps steps;
  if (json.exists()) COLIBRI_RETURN_IF_ERROR(read_component(json, "normalizers", kNormalizers, steps));
  return steps;
}

Result<std::vector<PreTokenizerStep>> read_pre_tokenizer(const JsonCursor& json) {
  PreTokenizerSteps steps;
  if (json.exists()) COLIBRI_RETURN_IF_ERROR(read_component(json, "pretokenizers", kPreTokenizers, steps));
  return steps;
}

Result<std::optional<std::vector<DecoderStep>>> read_decoder(const JsonCursor& json) {
  if (!json.exists()) return std::optional<DecoderSteps>();
  DecoderSteps steps;
  COLIBRI_RETURN_IF_ERROR(read_component(json, "decoders", kDecoders, steps));
  return std::optional<DecoderSteps>(std::move(steps));
}

Status read_post_processor(const JsonCursor& json, std::vector<std::int32_t>& prefix,
                           std::vector<std::int32_t>& suffix) {
  Surroundings around;
  if (json.exists()) COLIBRI_RETURN_IF_ERROR(read_component(json, "processors", kPostProcessors, around));
  prefix = std::move(around.prefix);
  suffix = std::move(around.suffix);
  return Status::ok();
}

}  // namespace colibri
