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

Status file_error(ErrorCode code, const std::string& what, const std::filesystem::path& file,
                  std::uint64_t offset, const std::string& rest) {
  return Status(code, what + ": " + with_link_target(file) + rest).in_file(file.string(), offset);
}

Status check_container_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) {
    return file_error(ErrorCode::not_found, "model folder does not exist", folder, Status::kNoOffset,
                      "; check the path");
  }
  if (!std::filesystem::is_directory(folder, ignored)) {
    return file_error(ErrorCode::invalid_input, "not a folder", folder, Status::kNoOffset,
                      "; expected a folder written by colibri convert");
  }
  if (std::filesystem::exists(folder / kSpecFile, ignored)) return Status::ok();
  for (const auto& [partial, advice] :
       {std::pair{kCopyFolder, "copy of a model: run colibri stage on the same model and folder again"},
        std::pair{kConversionFolder, "conversion: run colibri convert with the same arguments again"}}) {
    if (!std::filesystem::exists(folder / partial, ignored)) continue;
    return file_error(ErrorCode::not_found, "the model is not complete", folder, Status::kNoOffset,
                      std::string(" holds an unfinished ") + advice);
  }
  const bool checkpoint = std::filesystem::exists(folder / "config.json", ignored);
  return file_error(ErrorCode::not_found, "not a colibri model", folder, Status::kNoOffset,
                    std::string(" has no ") + kSpecFile +
                        (checkpoint ? "; it looks like a checkpoint: run colibri convert on it first"
                                    : "; expected a folder written by colibri convert"));
}

}  // namespace colibri
