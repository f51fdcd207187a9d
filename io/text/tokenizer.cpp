// Puts the parts together: added tokens, normalizer, pre-tokenizer, BPE, template, decoder.
#include "io/text/tokenizer.hpp"

#include <algorithm>
#include <fstream>
#include <new>
#include <system_error>
#include <utility>

#include "io/text/added_tokens.hpp"
#include "io/text/bpe_model.hpp"
#include "io/text/normalizer.hpp"
#include "io/text/pre_tokenizer.hpp"
#include "io/text/token_decoder.hpp"
#include "io/text/tokenizer_file.hpp"
#include "io/text/utf8.hpp"

namespace colibri {
namespace {

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{256} << 20;  // real ones have 1 to 35 MB
// Positions are 32-bit in BPE, and the byte alphabet doubles the text.
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    return Status(error == std::errc::no_such_file_or_directory ? ErrorCode::not_found : ErrorCode::io,
                  "tokenizer file cannot be read: " + error.message() + "; expected a tokenizer.json");
  }
  if (size > kMaxFileBytes) {
    return Status(ErrorCode::unsupported, "tokenizer file is too large: " + std::to_string(size) +
                                              " bytes; at most " + std::to_string(kMaxFileBytes) +
                                              " are supported");
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file) return Status(ErrorCode::io, "tokenizer file cannot be read; check its permissions");
  return text;
}

}  // namespace

struct Tokenizer::Parts {
  BpeModel model;
  Normalizer normalizer;
  AddedTokens added;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  std::vector<std::int32_t> template_prefix;
  std::vector<std::int32_t> template_suffix;

  static Result<std::unique_ptr<const Parts>> build(TokenizerDefinition definition);

  std::string_view text_of(std::int32_t id) const noexcept {
    return added.vocabulary().contains(id) ? added.vocabulary().text(id) : model.vocabulary().text(id);
  }
  std::string_view decoder_text(std::int32_t id) const noexcept {
    return added.vocabulary().contains(id) ? added.decoder_text(id) : model.vocabulary().text(id);
  }
  bool contains(std::int32_t id) const noexcept {
    return added.vocabulary().contains(id) || model.vocabulary().contains(id);
  }
};

Result<std::unique_ptr<const Tokenizer::Parts>> Tokenizer::Parts::build(TokenizerDefinition definition) {
  // The order matters for the errors: what contradicts the vocabulary is reported against it.
  COLIBRI_ASSIGN_OR_RETURN(BpeModel model, BpeModel::build(definition.model));
  definition.model = {};  // its strings are copied by now, and are most of the memory
  const auto in = [](const char* component, auto result) {
    if (!result) return decltype(result)(std::move(result).status().at(component));
    return result;
  };
  COLIBRI_ASSIGN_OR_RETURN(Normalizer normalizer, in("normalizer", Normalizer::build(definition.normalizer)));
  COLIBRI_ASSIGN_OR_RETURN(AddedTokens added, AddedTokens::build(std::move(definition.added_tokens),
                                                                 model.vocabulary(), normalizer));
  COLIBRI_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer,
                           in("pre_tokenizer", PreTokenizer::build(definition.pre_tokenizer)));
  COLIBRI_ASSIGN_OR_RETURN(TokenDecoder decoder, in("decoder", TokenDecoder::build(definition.decoder)));
  auto parts = std::make_unique<const Parts>(Parts{
      std::move(model), std::move(normalizer), std::move(added), std::move(pre_tokenizer), std::move(decoder),
      std::move(definition.template_prefix), std::move(definition.template_suffix)});
  // A template may name ids that nothing defines; they would reach the model's embedding table.
  for (const auto* ids : {&parts->template_prefix, &parts->template_suffix}) {
    for (const std::int32_t id : *ids) {
      if (parts->contains(id)) continue;
      return Status(ErrorCode::invalid_input,
                    "special token is not in the vocabulary: post_processor adds id " + std::to_string(id) +
                        "; expected an id of model.vocab or added_tokens");
    }
  }
  return std::unique_ptr<const Parts>(std::move(parts));
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::filesystem::path& tokenizer_json) try {
  Result<std::string> text = read_file(tokenizer_json);
  auto named = [&tokenizer_json](Status&& status) {
    return std::move(status).at(tokenizer_json.string()).in_file(tokenizer_json.string());
  };
  if (!text) return named(std::move(text).status());
  auto tokenizer = parse(*text);
  if (!tokenizer) return named(std::move(tokenizer).status());
  return tokenizer;
} catch (const std::bad_alloc&) {
  return Status(ErrorCode::out_of_memory, "no memory to load the tokenizer; free some");
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view json_text) try {
  COLIBRI_ASSIGN_OR_RETURN(TokenizerDefinition definition, parse_tokenizer_json(json_text));
  COLIBRI_ASSIGN_OR_RETURN(std::unique_ptr<const Parts> parts, Parts::build(std::move(definition)));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
} catch (const std::bad_alloc&) {
  return Status(ErrorCode::out_of_memory, "no memory to load the tokenizer; free some");
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text, bool add_special_tokens) const
    try {
  if (text.size() >= kMaxTextBytes) {
    return Status(ErrorCode::capacity, "text is too long to tokenize: " + std::to_string(text.size()) +
                                           " bytes; expected fewer than " + std::to_string(kMaxTextBytes));
  }
  if (const auto offset = first_invalid_utf8(text)) {
    return Status(ErrorCode::invalid_input, "text is not valid UTF-8: bad byte at offset " +
                                                std::to_string(*offset) + "; convert the text to UTF-8");
  }
  std::vector<std::int32_t> ids;
  if (add_special_tokens) ids = parts_->template_prefix;

  BpeModel::Scratch scratch;
  WordList list;
  std::string normalized;
  std::vector<AddedTokens::Segment> raw_segments;
  std::vector<AddedTokens::Segment> segments;
  // Added tokens cut the text three times over: raw tokens first, so that nothing rewrites
  // them; then normalization of what is between; then tokens that normalization may reveal.
  parts_->added.split_raw(text, raw_segments);
  for (const auto& raw : raw_segments) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    normalized = text.substr(raw.begin, raw.end - raw.begin);
    COLIBRI_RETURN_IF_ERROR(parts_->normalizer.apply(normalized));
    parts_->added.split_normalized(normalized, segments);
    for (const auto& segment : segments) {
      if (segment.id >= 0) {
        ids.push_back(segment.id);
        continue;
      }
      list.text = normalized.substr(segment.begin, segment.end - segment.begin);
      list.words.assign(1, {0, list.text.size()});
      // Only the very front of the input counts as its start, not the text behind an added token.
      list.at_input_start = raw.begin == 0 && segment.begin == 0;
      COLIBRI_RETURN_IF_ERROR(parts_->pre_tokenizer.apply(list));
      for (std::size_t i = 0; i < list.words.size(); ++i) parts_->model.encode(list.word(i), scratch, ids);
    }
  }
  if (add_special_tokens)
    ids.insert(ids.end(), parts_->template_suffix.begin(), parts_->template_suffix.end());
  return ids;
} catch (const std::bad_alloc&) {
  return Status(ErrorCode::out_of_memory,
                "no memory to tokenize a text of " + std::to_string(text.size()) + " bytes; shorten it");
}

bool Tokenizer::is_left_out(std::int32_t id, bool skip_special_tokens) const noexcept {
  return !parts_->contains(id) || (skip_special_tokens && is_special(id));
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  std::string text;
  TokenDecoder::Stream stream(parts_->decoder);
  for (const std::int32_t id : ids) {
    // Left out by id. The reference compares texts and so keeps special tokens that its
    // normalizer changes; nobody who asks to skip them wants those.
    if (!is_left_out(id, skip_special_tokens)) stream.push(parts_->decoder_text(id), text);
  }
  stream.finish(text);
  return text;
}

std::int32_t Tokenizer::vocab_size() const noexcept {
  return std::max(parts_->model.vocabulary().id_limit(), parts_->added.vocabulary().id_limit());
}

std::optional<std::int32_t> Tokenizer::token_id(std::string_view token) const noexcept {
  const auto added = parts_->added.vocabulary().find(token);
  return added ? added : parts_->model.vocabulary().find(token);
}

std::string_view Tokenizer::token_text(std::int32_t id) const noexcept { return parts_->text_of(id); }

bool Tokenizer::is_special(std::int32_t id) const noexcept { return parts_->added.is_special(id); }

std::optional<std::int32_t> Tokenizer::begin_token() const noexcept {
  if (parts_->template_prefix.empty()) return std::nullopt;
  return parts_->template_prefix.front();
}

struct StreamDecoder::State {
  std::shared_ptr<const Tokenizer> tokenizer;
  bool skip_special_tokens;
  TokenDecoder::Stream stream;
};

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens) {
  TokenDecoder::Stream stream(tokenizer->parts_->decoder);
  state_ = std::make_unique<State>(State{std::move(tokenizer), skip_special_tokens, std::move(stream)});
}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(std::int32_t id) {
  std::string text;
  if (!state_->tokenizer->is_left_out(id, state_->skip_special_tokens)) {
    state_->stream.push(state_->tokenizer->parts_->decoder_text(id), text);
  }
  return text;
}

std::string StreamDecoder::flush() {
  std::string text;
  state_->stream.finish(text);
  return text;
}

}  // namespace colibri
