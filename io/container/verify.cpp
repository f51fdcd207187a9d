// verify_container: every byte of a container against every checksum.
//
// model.bin and the files with expert records are read once: SHA-256 of the file and checksums of
// tensors and chunks come from the same pass; the hash tree is one over all files. Errors name the smallest
// thing that is known to be damaged.
#include <algorithm>
#include <new>
#include <vector>

#include "io/container/checksum.hpp"
#include "io/container/container.hpp"
#include "io/container/container_files.hpp"
#include "io/container/container_format.hpp"
#include "io/container/file_handle.hpp"
#include "io/container/hash_tree.hpp"
#include "io/container/manifest.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kVerifyPiece = 4U << 20;

// Reads one file front to back in pieces and keeps the SHA-256 of what was read.
class FrontToBack {
 public:
  using Progress = std::function<void(std::uint64_t)>;  // bytes of this piece

  FrontToBack(const FileHandle& file, const Progress& progress)
      : file_(file), progress_(progress), buffer_(std::min(kVerifyPiece, file.size())) {}

  std::uint64_t position() const noexcept { return position_; }

  // Reads up to `end`, handing every piece to `use`.
  template <class Use>
  Status read_to(std::uint64_t end, Use use) {
    while (position_ < end) {
      const auto piece = std::span(buffer_).first(std::min<std::uint64_t>(buffer_.size(), end - position_));
      COLIBRI_RETURN_IF_ERROR(file_.read_at(position_, piece));
      sha_.update(piece);
      use(std::span<const std::byte>(piece));
      position_ += piece.size();
      progress_(piece.size());
    }
    return Status::ok();
  }
  Status skip_to(std::uint64_t end) {
    return read_to(end, [](std::span<const std::byte>) {});
  }
  Result<Sha256Digest> finish() {
    COLIBRI_RETURN_IF_ERROR(skip_to(file_.size()));
    return sha_.digest();
  }

 private:
  const FileHandle& file_;
  const Progress& progress_;
  std::vector<std::byte> buffer_;
  Sha256Stream sha_;
  std::uint64_t position_ = 0;
};

// The records that lie in expert file `index`, which is `file`.
Result<Sha256Digest> verify_experts(const Container& container, std::uint32_t index, const FileHandle& file,
                                    const FrontToBack::Progress& progress) {
  FrontToBack reader(file, progress);
  const ModelSpec& spec = container.spec();
  Xxh3Stream hash;
  for (std::uint32_t layer = 0; layer < spec.num_layers(); ++layer) {
    if (!spec.layers[layer].moe) continue;
    for (std::uint32_t expert = 0; expert < spec.num_experts; ++expert) {
      const ExpertRecord record = container.record(layer, expert);
      if (record.file != index) continue;
      COLIBRI_RETURN_IF_ERROR(reader.skip_to(record.offset));
      const std::uint64_t payload_end = record.offset + container.layout().payload_bytes;
      for (std::size_t chunk = 0; chunk < record.chunk_hashes.size(); ++chunk) {
        const std::uint64_t begin = reader.position();
        hash.reset();
        COLIBRI_RETURN_IF_ERROR(reader.read_to(std::min(payload_end, begin + spec.expert_chunk_size),
                                               [&hash](auto piece) { hash.update(piece); }));
        if (hash.digest() == record.chunk_hashes[chunk]) continue;
        return file_error(ErrorCode::corrupt, "wrong checksum of an expert", file.path(), begin,
                          ", offset " + std::to_string(begin) + ": layer " + std::to_string(layer) +
                              ", expert " + std::to_string(expert) + ", chunk " + std::to_string(chunk) +
                              ", expected " + std::to_string(record.chunk_hashes[chunk]) + ", found " +
                              std::to_string(hash.digest()) + "; copy or convert the model again");
      }
    }
  }
  return reader.finish();
}

Result<Sha256Digest> verify_model(const Container& container, const FileHandle& file,
                                  const FrontToBack::Progress& progress) {
  FrontToBack reader(file, progress);
  Xxh3Stream hash;
  for (const DenseTensor& tensor : container.dense_tensors()) {
    COLIBRI_RETURN_IF_ERROR(reader.skip_to(kPageBytes + tensor.offset));
    hash.reset();
    COLIBRI_RETURN_IF_ERROR(reader.read_to(kPageBytes + tensor.offset + tensor.bytes,
                                           [&hash](auto piece) { hash.update(piece); }));
    COLIBRI_RETURN_IF_ERROR(check_tensor_hash(tensor, hash.digest(), file.path()));
  }
  return reader.finish();
}

// Every file of the container: records, tensors, or bytes alone.
Result<Sha256Digest> verify_file(const Container& container, const FileHandle& file,
                                 const FrontToBack::Progress& progress) {
  if (file.path() == container.folder() / kModelFile) return verify_model(container, file, progress);
  const auto expert_files = container.expert_files();
  for (std::uint32_t index = 0; index < expert_files.size(); ++index) {
    if (file.path() == expert_files[index]) return verify_experts(container, index, file, progress);
  }
  return FrontToBack(file, progress).finish();
}

HashTree tree_of(const Container& container) {
  HashTree tree;
  const ModelSpec& spec = container.spec();
  for (std::uint32_t layer = 0; layer < spec.num_layers(); ++layer) {
    for (std::uint32_t expert = 0; spec.layers[layer].moe && expert < spec.num_experts; ++expert) {
      tree.add_record(layer, expert, container.record(layer, expert).chunk_hashes);
    }
  }
  return tree;
}

Status verify_files(const std::filesystem::path& folder,
                    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  COLIBRI_ASSIGN_OR_RETURN(const std::shared_ptr<const Container> container, Container::open(folder));
  const std::filesystem::path manifest_path = folder / kManifestFile;
  COLIBRI_ASSIGN_OR_RETURN(const std::string manifest_text, read_text_file(manifest_path, kMaxManifestBytes));
  COLIBRI_ASSIGN_OR_RETURN(const Manifest listed, manifest_from_json(manifest_text, manifest_path));

  // What is there, in the manifest's order.
  std::vector<std::pair<std::string, FileHandle>> files;
  std::uint64_t total = 0;
  for (const std::string& name : listed_files()) {
    const std::filesystem::path path = folder / name;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    COLIBRI_ASSIGN_OR_RETURN(FileHandle file, FileHandle::open_for_reading(path));
    total += file.size();
    files.emplace_back(name, std::move(file));
  }
  std::uint64_t done = 0;
  const FrontToBack::Progress advance = [&](std::uint64_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  };

  Manifest found;
  for (const auto& [name, file] : files) {
    Result<Sha256Digest> digest = verify_file(*container, file, advance);
    if (!digest) return std::move(digest).status();
    const auto entry = std::find_if(listed.files.begin(), listed.files.end(),
                                    [&name = name](const ManifestFile& other) { return other.name == name; });
    if (entry == listed.files.end()) {
      return file_error(ErrorCode::corrupt, "file is not in the manifest", file.path(), Status::kNoOffset,
                        "; it was added after the conversion: remove it or convert again");
    }
    if (entry->bytes != file.size() || entry->sha256 != *digest) {
      return file_error(ErrorCode::corrupt, "wrong SHA-256 of file", file.path(), Status::kNoOffset,
                        ", expected " + std::to_string(entry->bytes) + " bytes with " +
                            to_hex(entry->sha256) + ", found " + std::to_string(file.size()) +
                            " bytes with " + to_hex(*digest) + "; copy or convert the model again");
    }
    found.files.push_back({name, file.size(), *digest});
  }
  for (const ManifestFile& entry : listed.files) {
    const auto same = [&entry](const ManifestFile& file) { return file.name == entry.name; };
    if (std::none_of(found.files.begin(), found.files.end(), same)) {
      return file_error(ErrorCode::not_found, "file of the manifest is missing", folder / entry.name,
                        Status::kNoOffset, "; copy or convert the model again");
    }
  }
  const HashTree tree = tree_of(*container);
  found.expert_records = tree.records();
  found.chunk_tree_root = tree.root();
  if (found.chunk_tree_root != listed.chunk_tree_root) {
    return file_error(
        ErrorCode::corrupt, "wrong root of the hash tree", manifest_path, Status::kNoOffset,
        ", expected " + to_hex(listed.chunk_tree_root) + ", found " + to_hex(found.chunk_tree_root));
  }
  if (manifest_to_json(found) != manifest_text) {
    return file_error(ErrorCode::corrupt, "damaged manifest", manifest_path, Status::kNoOffset,
                      ": its text differs from what the files demand; convert the model again");
  }
  return Status::ok();
}

}  // namespace

Status verify_container(const std::filesystem::path& folder,
                        const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  try {
    return verify_files(folder, progress);
  } catch (const std::bad_alloc&) {
    return {ErrorCode::out_of_memory, "no memory to verify the container: " + folder.string()};
  } catch (const std::exception& error) {
    return {ErrorCode::internal, "cannot verify container: " + folder.string() + ": " + error.what()};
  }
}

}  // namespace colibri
