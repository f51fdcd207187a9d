// Recognising a container folder and its files.
#include "io/container/container_files.hpp"

#include <algorithm>

namespace colibri {

std::string expert_part_name(std::uint32_t part) { return "experts." + std::to_string(part) + ".bin"; }

std::vector<std::string> listed_files() {
  std::vector<std::string> names = {kSpecFile, kModelFile, kExpertsFile};
  for (std::uint32_t part = 0; part < kMaxExpertFiles; ++part) names.push_back(expert_part_name(part));
  names.insert(names.end(), kCopiedFiles.begin(), kCopiedFiles.end());
  return names;
}

bool is_listed_file(std::string_view name) {
  const std::vector<std::string> names = listed_files();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string with_link_target(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(path, error);
  return error ? path.string() : path.string() + " -> " + target.string();
}

Status check_container_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) {
    return {ErrorCode::not_found, "model folder does not exist: " + folder.string() + "; check the path"};
  }
  if (!std::filesystem::is_directory(folder, ignored)) {
    return {ErrorCode::invalid_input,
            "not a folder: " + folder.string() + "; expected a folder written by colibri convert"};
  }
  if (std::filesystem::exists(folder / kSpecFile, ignored)) return Status::ok();
  for (const auto& [partial, advice] :
       {std::pair{kCopyFolder, "copy of a model: run colibri stage on the same model and folder again"},
        std::pair{kConversionFolder, "conversion: run colibri convert with the same arguments again"}}) {
    if (!std::filesystem::exists(folder / partial, ignored)) continue;
    return {ErrorCode::not_found,
            "the model is not complete: " + folder.string() + " holds an unfinished " + advice};
  }
  const bool checkpoint = std::filesystem::exists(folder / "config.json", ignored);
  return {ErrorCode::not_found,
          "not a colibri model: " + folder.string() + " has no " + kSpecFile +
              (checkpoint ? "; it looks like a checkpoint: run colibri convert on it first"
                          : "; expected a folder written by colibri convert")};
}

}  // namespace colibri
