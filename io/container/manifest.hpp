// manifest.json: the SHA-256 of every file of a container and the root of its hash tree.
//
// The text is a pure function of the content, so verification writes it again and compares bytes:
// no change to the manifest itself can go unnoticed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/container/checksum.hpp"
#include "io/status.hpp"

namespace colibri {

struct ManifestFile {
  std::string name;
  std::uint64_t bytes = 0;
  Sha256Digest sha256{};
};

struct Manifest {
  std::vector<ManifestFile> files;  // in the order of listed_files()
  std::uint64_t expert_records = 0;
  Sha256Digest chunk_tree_root{};
};

std::string manifest_to_json(const Manifest& manifest);
Result<Manifest> manifest_from_json(std::string_view text, const std::filesystem::path& file);

}  // namespace colibri
