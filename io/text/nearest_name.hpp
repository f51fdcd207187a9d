// The name that somebody most likely meant, for "did you mean" in errors.
#pragma once

#include <span>
#include <string_view>

namespace colibri {

// The name with the fewest edits (insert, delete, replace, swap of neighbours) from `found`, ignoring
// case; empty when none is near: at most a third of the letters may differ, but one always may.
// A tie goes to the earlier name.
std::string_view nearest_name(std::string_view found, std::span<const std::string_view> names);

}  // namespace colibri
