// The files that a fetch may read a record from: those of the model, and of its copies on other drives.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "io/container/container.hpp"
#include "io/status.hpp"

namespace colibri {

// expert_files() of the model, then of each folder in `mirrors` (separated by commas; may be empty). Not ok
// when one is no container or holds other bytes.
Result<std::vector<std::filesystem::path>> files_with_mirrors(const Container& model,
                                                              std::string_view mirrors);

}  // namespace colibri
