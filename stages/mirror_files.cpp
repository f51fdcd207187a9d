#include "stages/mirror_files.hpp"

#include <sstream>
#include <string>
#include <utility>

namespace colibri {

Result<std::vector<std::filesystem::path>> files_with_mirrors(const Container& model,
                                                              std::string_view mirrors) {
  std::vector<std::filesystem::path> files(model.expert_files().begin(), model.expert_files().end());
  std::istringstream folders{std::string(mirrors)};
  for (std::string folder; std::getline(folders, folder, ',');) {
    auto mirror = Container::open(folder);
    if (!mirror) return std::move(mirror).status().at("mirror " + folder);
    // Names every checksum and the place of every record, so that offsets and bytes are the same.
    if ((*mirror)->digest() != model.digest()) {
      return Status(ErrorCode::invalid_input, "a mirror holds another model: " + folder +
                                                  ", expected a copy of " + model.folder().string() +
                                                  "; make it with colibri stage MODEL DIR");
    }
    files.insert(files.end(), (*mirror)->expert_files().begin(), (*mirror)->expert_files().end());
  }
  return files;
}

}  // namespace colibri
