// The files that hold expert records: experts.bin itself, or the parts behind the links of a striped model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "io/container/container_format.hpp"
#include "io/status.hpp"

namespace colibri {

// In the order of their indices.
std::vector<std::filesystem::path> expert_file_paths(const std::filesystem::path& folder,
                                                     std::uint32_t files);

// Not ok when a part is missing, damaged, of another model or weights, or in the place of another part;
// names the link and the file that it points to. `chunk_hashes` are those of experts.bin.
Status check_expert_parts(const std::filesystem::path& folder, const ModelSpec& spec,
                          const ExpertLayout& layout, const PageTableShape& pages,
                          const Sha256Digest& spec_digest, std::span<const std::uint64_t> chunk_hashes);

}  // namespace colibri
