// CheckpointFolder: the safetensors shards of a Hugging Face folder as one set of named tensors.
//
// One model.safetensors, or the shards of model.safetensors.index.json. Snapshot folders made of
// symbolic links work; a dangling link is reported with its target. All headers are read and
// checked at open, no weights.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/checkpoint/safetensors.hpp"
#include "io/status.hpp"

namespace colibri {

struct StoredTensor {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* info = nullptr;
};

class CheckpointFolder {
 public:
  static Result<CheckpointFolder> open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const noexcept { return folder_; }
  // file is null when there is no such tensor.
  StoredTensor find(std::string_view name) const noexcept;
  const std::deque<SafetensorsFile>& shards() const noexcept { return shards_; }
  // Names, sizes, times and header hashes of the shards: changes when the weights do.
  std::string identity() const;

 private:
  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  Status open_shards(const std::map<std::string, std::string>& weight_map);
  Status add_shard(const std::string& name);

  std::filesystem::path folder_;
  std::deque<SafetensorsFile> shards_;  // a deque: elements keep their addresses
  std::vector<std::string> shard_names_;
  std::unordered_map<std::string_view, StoredTensor> tensors_;  // names lie in the shards
};

}  // namespace colibri
