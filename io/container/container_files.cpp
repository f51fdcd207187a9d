// Recognising a container folder.
#include "io/container/container_files.hpp"

namespace colibri {

Status check_container_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) {
    return {ErrorCode::not_found, "model folder does not exist: " + folder.string()};
  }
  if (!std::filesystem::is_directory(folder, ignored)) {
    return {ErrorCode::invalid_input,
            "not a folder: " + folder.string() + "; expected a folder written by colibri convert"};
  }
  if (std::filesystem::exists(folder / kSpecFile, ignored)) return Status::ok();
  const bool checkpoint = std::filesystem::exists(folder / "config.json", ignored);
  return {ErrorCode::not_found,
          "not a colibri model: " + folder.string() + " has no " + kSpecFile +
              (checkpoint ? "; it looks like a checkpoint: run colibri convert on it first"
                          : "; expected a folder written by colibri convert")};
}

}  // namespace colibri
