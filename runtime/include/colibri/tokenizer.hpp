// Tokenizer: text to token ids and back, as the model's tokenizer.json says.
//
// Engine::tokenizer() gives the model's own; see io/text/tokenizer.hpp for what it can do.
#pragma once

#include "io/text/tokenizer.hpp"
