// Reading and writing of manifest.json.
#include "io/container/manifest.hpp"

#include "io/container/container.hpp"
#include "io/container/container_files.hpp"
#include "io/container/strict_json.hpp"

namespace colibri {
namespace {

using nlohmann::ordered_json;

Status damaged_manifest(const std::filesystem::path& file, const std::string& what) {
  return file_error(ErrorCode::corrupt, "damaged manifest", file, Status::kNoOffset,
                    ": " + what + "; convert the model again");
}

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

// False when the value is no lower-case hex of 32 bytes.
bool parse_digest(const nlohmann::json& value, Sha256Digest& digest) {
  if (!value.is_string()) return false;
  const auto& hex = value.get_ref<const std::string&>();
  if (hex.size() != 2 * digest.size()) return false;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const int high = hex_value(hex[2 * i]);
    const int low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    digest[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

}  // namespace

std::string manifest_to_json(const Manifest& manifest) {
  ordered_json files = ordered_json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", to_hex(file.sha256)}});
  }
  const ordered_json document = {
      {"version", kContainerVersion},
      {"files", std::move(files)},
      {"chunk_tree", {{"records", manifest.expert_records}, {"root", to_hex(manifest.chunk_tree_root)}}},
  };
  return document.dump(2) + "\n";
}

Result<Manifest> manifest_from_json(std::string_view text, const std::filesystem::path& file) {
  auto parsed = parse_strict_json(text, file.string());
  if (!parsed) return std::move(parsed).status().in_file(file.string());
  const nlohmann::json& document = *parsed;
  try {
    if (const auto& version = document.at("version"); version != kContainerVersion) {
      return file_error(ErrorCode::unsupported, "unknown version of the manifest", file, Status::kNoOffset,
                        ", expected " + std::to_string(kContainerVersion) + ", found " + version.dump());
    }
    Manifest manifest;
    for (const nlohmann::json& entry : document.at("files")) {
      ManifestFile one;
      one.name = entry.at("name").get<std::string>();
      one.bytes = entry.at("bytes").get<std::uint64_t>();
      // Only names that a container can have: the manifest must not lead to a file elsewhere.
      if (!is_listed_file(one.name)) {
        return damaged_manifest(file, "it lists the unknown file " + entry.at("name").dump());
      }
      if (!parse_digest(entry.at("sha256"), one.sha256))
        return damaged_manifest(file, "wrong sha256 of " + one.name);
      manifest.files.push_back(std::move(one));
    }
    const nlohmann::json& tree = document.at("chunk_tree");
    manifest.expert_records = tree.at("records").get<std::uint64_t>();
    if (!parse_digest(tree.at("root"), manifest.chunk_tree_root))
      return damaged_manifest(file, "wrong chunk_tree root");
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    return damaged_manifest(file, error.what());
  }
}

}  // namespace colibri
