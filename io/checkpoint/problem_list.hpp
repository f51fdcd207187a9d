// Many problems in one sentence: the first ones by name, the rest by number.
#pragma once

#include <span>
#include <string>

namespace colibri {

// "a; b; and 3 more"
std::string list_problems(std::span<const std::string> problems);

}  // namespace colibri
