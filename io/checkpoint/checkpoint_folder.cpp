// Finding and opening shards.
#include "io/checkpoint/checkpoint_folder.hpp"

#include <nlohmann/json.hpp>
#include <set>

#include "io/checkpoint/problem_list.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr std::uint64_t kMaxIndexBytes = 100'000'000;
constexpr int kMaxIndexDepth = 64;

// Takes "weight_map": {tensor: shard} from an index and skips the rest. Streaming, because an index of a
// large model has many megabytes.
class IndexHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::map<std::string, std::string> weight_map;
  bool found = false;
  std::string error;

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool string(string_t& text) override {
    if (!in_map_) return value();
    if (!weight_map.emplace(key_, text).second) return fail("tensor \"" + key_ + "\" occurs twice");
    return true;
  }
  bool start_object(std::size_t) override {
    if (in_map_) return fail("weight_map must hold strings");
    if (++depth_ > kMaxIndexDepth) return fail("nested too deeply");
    if (depth_ == 2 && key_ == "weight_map") in_map_ = found = true;
    return true;
  }
  bool end_object() override {
    in_map_ = false;  // objects do not nest inside the map
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (in_map_) return fail("weight_map must hold strings");
    return ++depth_ <= kMaxIndexDepth || fail("nested too deeply");
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& text) override {
    key_ = text;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& reason) override {
    return fail("byte " + std::to_string(position) + ": " + reason.what());
  }

 private:
  bool fail(std::string what) {
    if (error.empty()) error = std::move(what);
    return false;
  }
  bool value() { return !in_map_ || fail("weight_map must hold strings"); }

  int depth_ = 0;
  bool in_map_ = false;
  std::string key_;
};

Result<std::map<std::string, std::string>> read_index(const fs::path& path) {
  COLIBRI_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxIndexBytes));
  IndexHandler handler;
  const bool parsed = nlohmann::json::sax_parse(text, &handler);
  if (parsed && !handler.found) handler.error = "it has no weight_map";
  if (!parsed || !handler.found) {
    return Status(ErrorCode::invalid_input,
                  "damaged index of shards: " + path.string() + ": " + handler.error);
  }
  for (const auto& [tensor, shard] : handler.weight_map) {
    // A name that leads elsewhere would read files outside the checkpoint.
    if (shard.empty() || shard == "." || shard == ".." ||
        shard.find_first_of(std::string("/\\\0", 3)) != std::string::npos) {
      return Status(ErrorCode::invalid_input, "damaged index of shards: " + path.string() + ": tensor \"" +
                                                  tensor + "\" lies in \"" + shard +
                                                  "\", which is no file name");
    }
  }
  return std::move(handler.weight_map);
}

// What is there instead of weights, for a message that helps.
std::string other_weights(const fs::path& folder) {
  std::error_code error;
  std::string found;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::string extension = entry->path().extension().string();
    if (extension == ".safetensors") return "there are .safetensors files, but no index names them";
    if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".gguf")
      found = name;
  }
  return found.empty() ? "is the download complete?" : "found " + found + "; only safetensors can be read";
}

}  // namespace

Result<CheckpointFolder> CheckpointFolder::open(const fs::path& folder) {
  CheckpointFolder checkpoint(folder);
  std::error_code ignored;
  // is_symlink: a dangling link must be reported as such, not as a missing file.
  const auto present = [&](const char* name) {
    return fs::exists(folder / name, ignored) || fs::is_symlink(folder / name, ignored);
  };
  if (present(kSingleFile)) {
    COLIBRI_RETURN_IF_ERROR(checkpoint.add_shard(kSingleFile));
  } else if (present(kIndexFile)) {
    COLIBRI_ASSIGN_OR_RETURN(const auto weight_map, read_index(folder / kIndexFile));
    COLIBRI_RETURN_IF_ERROR(checkpoint.open_shards(weight_map));
  } else {
    return Status(ErrorCode::not_found, "checkpoint has no weights: " + folder.string() + ", expected " +
                                            kSingleFile + " or " + kIndexFile + "; " + other_weights(folder));
  }
  return checkpoint;
}

Status CheckpointFolder::open_shards(const std::map<std::string, std::string>& weight_map) {
  std::set<std::string> names;
  for (const auto& [tensor, shard] : weight_map) names.insert(shard);
  // All shards that cannot be opened are named at once: downloads miss several as often as one.
  std::vector<std::string> problems;
  ErrorCode code = ErrorCode::corrupt;
  for (const std::string& name : names) {
    if (Status added = add_shard(name); !added) {
      problems.push_back(added.to_string());
      code = added.code();
    }
  }
  if (problems.empty()) {
    for (const auto& [name, shard] : weight_map) {
      const StoredTensor found = find(name);
      const std::string expected = "tensor " + name + ", expected in " + shard + ", found ";
      if (found.file == nullptr) {
        problems.push_back(expected + "in no shard");
      } else if (found.file->path().filename() != shard) {
        problems.push_back(expected + "in " + found.file->path().filename().string());
      }
    }
    for (const auto& [name, stored] : tensors_) {
      if (!weight_map.contains(std::string(name))) {
        problems.push_back("tensor " + std::string(name) + " of " + stored.file->path().filename().string() +
                           " is not in the index");
      }
    }
  }
  if (problems.empty()) return Status::ok();
  return {code, "the shards do not fit " + (folder_ / kIndexFile).string() + ": " + list_problems(problems)};
}

Status CheckpointFolder::add_shard(const std::string& name) {
  COLIBRI_ASSIGN_OR_RETURN(SafetensorsFile shard, SafetensorsFile::open(folder_ / name));
  shards_.push_back(std::move(shard));
  shard_names_.push_back(name);
  const SafetensorsFile& file = shards_.back();
  for (const TensorInfo& tensor : file.tensors()) {
    const auto [place, added] = tensors_.emplace(tensor.name, StoredTensor{&file, &tensor});
    if (!added) {
      return {ErrorCode::corrupt, "a tensor lies in two shards: " + tensor.name + " in " +
                                      place->second.file->path().string() + " and " + file.path().string()};
    }
  }
  return Status::ok();
}

StoredTensor CheckpointFolder::find(std::string_view name) const noexcept {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? StoredTensor{} : found->second;
}

std::string CheckpointFolder::identity() const {
  std::string text;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const SafetensorsFile& shard = shards_[i];
    text += shard_names_[i] + " " + std::to_string(shard.file().size()) + " " +
            std::to_string(shard.file().modified_ns()) + " " + std::to_string(shard.header_hash()) + "\n";
  }
  return text;
}

}  // namespace colibri
