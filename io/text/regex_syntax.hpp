// Regular expressions in tokenizer.json are written for Oniguruma; we run them with PCRE2.
// The two agree on the constructs that tokenizers use, except for what \s, \w, \b, script
// names and a few escapes mean. This translates a pattern so that PCRE2 matches the same
// text, and refuses by name what it cannot translate (nested classes, '&&', option groups
// other than case-insensitivity, ...) rather than tokenising differently in silence.
#pragma once

#include <string>
#include <string_view>

#include "io/status.hpp"

namespace colibri {

Result<std::string> to_pcre2_syntax(std::string_view oniguruma_pattern);

}  // namespace colibri
