// Reads the small components of a tokenizer.json (all but the model) from their JSON into
// definitions. Whatever is not supported is refused by its type and JSON path.
#pragma once

#include <optional>
#include <vector>

#include "io/status.hpp"
#include "io/text/json_cursor.hpp"
#include "io/text/tokenizer_definition.hpp"

namespace colibri {

// An absent component has no steps (a normalizer, a pre-tokenizer) or is nullopt (a decoder).
Result<std::vector<NormalizerStep>> read_normalizer(const JsonCursor& json);
Result<std::vector<PreTokenizerStep>> read_pre_tokenizer(const JsonCursor& json);
Result<std::optional<std::vector<DecoderStep>>> read_decoder(const JsonCursor& json);

// Wraps `prefix` and `suffix` by what the post-processor puts around a single sequence.
Status read_post_processor(const JsonCursor& json, std::vector<std::int32_t>& prefix,
                           std::vector<std::int32_t>& suffix);

}  // namespace colibri
