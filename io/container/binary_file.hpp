// BinaryFile: a .bin file of a container, opened and its header checked. Internal to io/container.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "io/container/container_format.hpp"
#include "io/container/file_handle.hpp"

namespace colibri {

struct BinaryFile {
  FileHandle file;
  BinaryHeader header;
  std::vector<std::byte> table;  // as it is in the file; its checksum is not checked yet
};

// Checks length, header, and that the file belongs to the model_spec.json with this digest. Errors name the
// target too when `path` is a link.
Result<BinaryFile> open_binary(const std::filesystem::path& path, BinaryKind kind,
                               const Sha256Digest& spec_digest);

}  // namespace colibri
