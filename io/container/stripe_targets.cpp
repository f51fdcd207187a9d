// Names and checks of the files that a striped model has elsewhere.
#include "io/container/stripe_targets.hpp"

#include <algorithm>
#include <string>

#include "io/container/checksum.hpp"
#include "io/container/container_files.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTagDigits = 8;

Status check_count(std::size_t directories, std::uint32_t num_experts) {
  const std::string found = std::to_string(directories);
  if (directories < 2) {
    return {ErrorCode::invalid_input,
            "too few directories to stripe the experts over: expected at least 2, found " + found +
                "; name one per drive, or leave them out"};
  }
  const std::uint32_t most = std::min(kMaxExpertFiles, num_experts);
  if (directories <= most) return Status::ok();
  return {ErrorCode::invalid_input, "too many directories to stripe the experts over: expected at most " +
                                        std::to_string(most) + ", found " + found + "; a layer has " +
                                        std::to_string(num_experts) + " experts"};
}

// Absolute and without links, so that one directory has one name.
Result<fs::path> resolve(const fs::path& directory) {
  std::error_code error;
  const fs::path resolved = fs::canonical(directory, error);
  if (error || !fs::is_directory(resolved, error)) {
    return Status(ErrorCode::not_found, "directory for experts does not exist: " + directory.string() +
                                            "; create it, and check that its drive is mounted");
  }
  return resolved;
}

}  // namespace

Result<std::vector<fs::path>> stripe_targets(const fs::path& model_folder,
                                             std::span<const fs::path> directories,
                                             std::uint32_t num_experts) {
  COLIBRI_RETURN_IF_ERROR(check_count(directories.size(), num_experts));
  std::error_code ignored;
  fs::path folder = fs::weakly_canonical(fs::absolute(model_folder, ignored), ignored);
  if (!folder.has_filename()) folder = folder.parent_path();  // "model/"
  const std::string text = folder.string();
  const std::string tag = to_hex(sha256(std::as_bytes(std::span(text)))).substr(0, kTagDigits);

  std::vector<fs::path> seen;
  std::vector<fs::path> targets;
  for (const fs::path& directory : directories) {
    COLIBRI_ASSIGN_OR_RETURN(const fs::path resolved, resolve(directory));
    if (resolved == folder || resolved.parent_path() == folder) {
      return Status(ErrorCode::invalid_input,
                    "directory for experts is the model's own: " + directory.string() +
                        "; choose one beside " + model_folder.string());
    }
    if (std::find(seen.begin(), seen.end(), resolved) != seen.end()) {
      return Status(ErrorCode::invalid_input,
                    "directory for experts is named twice: " + directory.string() + "; name one per drive");
    }
    targets.push_back(resolved / (folder.filename().string() + "." + tag + "." +
                                  expert_part_name(static_cast<std::uint32_t>(targets.size()))));
    seen.push_back(resolved);
  }
  return targets;
}

}  // namespace colibri
