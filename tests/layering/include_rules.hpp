// The two rules of includes: which folders a folder may include from, and in which folder, or in which
// files, a third-party library may be included at all.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace colibri::layering {

// What is wrong with `line`, a line of the file `path` (from the project root, with /); empty: nothing, also
// when it is no include line. `stage_headers`: the files of stages/include/colibri; any other <colibri/...>
// belongs to the runtime.
std::string check_include(std::string_view path, std::string_view line,
                          const std::set<std::string, std::less<>>& stage_headers);

// Whether a line of a CMake file collects files by pattern.
bool collects_by_pattern(std::string_view line);

}  // namespace colibri::layering
