#include "runtime/cli/job_files.hpp"

#include <algorithm>
#include <filesystem>

namespace colibri::cli {
namespace {

namespace fs = std::filesystem;

// Devices and pipes may be given more than once.
bool is_plain(const JobFile& file) {
  std::error_code ignored;
  return !file.path.empty() && file.path != "-" &&
         (!fs::exists(file.path, ignored) || fs::is_regular_file(file.path, ignored));
}

fs::path resolved(const std::string& path) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  return whole.empty() ? fs::path(path) : whole;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored) || resolved(a) == resolved(b);
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

Status check_job_files(const std::string& model_folder, std::span<const JobFile> files) {
  std::error_code ignored;
  // What is no container is refused as such, with more to say.
  const bool container = fs::exists(fs::path(model_folder) / "model_spec.json", ignored);
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!files[i].written || !is_plain(files[i])) continue;
    if (container && lies_in(resolved(files[i].path), resolved(model_folder))) {
      return {ErrorCode::invalid_input, files[i].role + " would be written into the model's folder: " +
                                            files[i].path + "; name a file elsewhere"};
    }
    for (std::size_t k = 0; k < files.size(); ++k) {
      // Two written files are looked at once.
      if (k == i || (files[k].written && k < i) || !is_plain(files[k])) continue;
      if (!same_file(files[i].path, files[k].path)) continue;
      return {ErrorCode::invalid_input, files[i].role + " would overwrite " + files[k].role + ": '" +
                                            files[i].path + "'; name another file"};
    }
  }
  return {};
}

}  // namespace colibri::cli
