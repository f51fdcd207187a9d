// Where the parts of a striped model go.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "io/status.hpp"

namespace colibri {

// One file per directory, in their order: DIRECTORY/<model>.<tag>.experts.<part>.bin. The tag is made of
// where the model lies, so that two models never want the same file; another conversion of this one does.
// Not ok when there are too few or too many directories, or one is missing, named twice or the model's own.
Result<std::vector<std::filesystem::path>> stripe_targets(const std::filesystem::path& model_folder,
                                                          std::span<const std::filesystem::path> directories,
                                                          std::uint32_t num_experts);

}  // namespace colibri
