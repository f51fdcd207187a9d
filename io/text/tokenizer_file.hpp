// Reads a tokenizer.json, as Hugging Face tokenizers writes it, into a TokenizerDefinition.
// The file is untrusted: anything malformed comes back as a Status that names the JSON path.
#pragma once

#include <string_view>

#include "io/status.hpp"
#include "io/text/tokenizer_definition.hpp"

namespace colibri {

Result<TokenizerDefinition> parse_tokenizer_json(std::string_view json_text);

}  // namespace colibri
