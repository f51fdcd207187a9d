// Checks of flag values that CLI11's own do not make. Each gives an empty text when the value is
// fine, else the sentence that the user sees.
#pragma once

#include <string>

namespace colibri::cli {

// CLI11's ranges let "nan" through.
std::string check_is_number(const std::string& text);
// CLI11 wraps negative and too large numbers silently. Decimal digits, at most 2^64 - 1.
std::string check_is_unsigned(const std::string& text);
std::string check_not_empty(const std::string& text);

}  // namespace colibri::cli
