// Copying front to back with hashes on the way; the twin of verify.cpp.
#include "io/container/copy_container.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "io/container/checksum.hpp"
#include "io/container/container.hpp"
#include "io/container/container_files.hpp"
#include "io/container/file_handle.hpp"
#include "io/container/file_system.hpp"
#include "io/container/free_space.hpp"
#include "io/container/manifest.hpp"
#include "io/container/output_folder.hpp"
#include "io/container/write_behind.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kCopyPiece = 4U << 20;

// Bytes of a file whose xxh3-64 is known.
struct Checked {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t hash = 0;
  std::uint64_t owner = 0;  // what they are a part of, by number
};

// The checked bytes of a file, in ascending order of place.
struct CheckedRanges {
  std::vector<Checked> ranges;
  std::function<std::string(std::uint64_t)> name_of_owner;
};

CheckedRanges ranges_of_model(const Container& container) {
  CheckedRanges found;
  const auto tensors = container.dense_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t begin = kPageBytes + tensors[i].offset;
    found.ranges.push_back({begin, begin + tensors[i].bytes, tensors[i].checksum, i});
  }
  found.name_of_owner = [tensors](std::uint64_t tensor) { return "tensor " + tensors[tensor].name; };
  return found;
}

CheckedRanges ranges_of_experts(const Container& container, std::uint32_t file) {
  CheckedRanges found;
  const ModelSpec& spec = container.spec();
  for (std::uint32_t layer = 0; layer < spec.num_layers(); ++layer) {
    for (std::uint32_t expert = 0; spec.layers[layer].moe && expert < spec.num_experts; ++expert) {
      const ExpertRecord record = container.record(layer, expert);
      if (record.file != file) continue;
      const std::uint64_t payload_end = record.offset + container.layout().payload_bytes;
      std::uint64_t begin = record.offset;
      for (const std::uint64_t hash : record.chunk_hashes) {
        const std::uint64_t end = std::min(payload_end, begin + spec.expert_chunk_size);
        found.ranges.push_back({begin, end, hash, std::uint64_t{layer} * spec.num_experts + expert});
        begin = end;
      }
    }
  }
  found.name_of_owner = [experts = spec.num_experts](std::uint64_t record) {
    return "layer " + std::to_string(record / experts) + ", expert " + std::to_string(record % experts);
  };
  return found;
}

CheckedRanges ranges_of(const Container& container, const std::string& name) {
  if (name == kModelFile) return ranges_of_model(container);
  const auto files = container.expert_files();
  for (std::uint32_t file = 0; file < files.size(); ++file) {
    if (files[file].filename() == name) return ranges_of_experts(container, file);
  }
  return {};
}

// One file on its way from `from` to `to`, front to back.
class FileCopy {
 public:
  // moved: called with the bytes of each piece; not ok ends the copy.
  FileCopy(const FileHandle& from, const FileHandle& to, std::function<Status(std::uint64_t)> moved)
      : from_(from), to_(to), moved_(std::move(moved)), buffer_(std::min(kCopyPiece, from.size())) {
    from_.read_ahead();
  }

  Status copy(const CheckedRanges& checked) {
    for (const Checked& range : checked.ranges) {
      COLIBRI_RETURN_IF_ERROR(copy_to(range.begin));
      COLIBRI_ASSIGN_OR_RETURN(const bool kept, keep(range));
      if (kept) continue;
      hash_.reset();
      COLIBRI_RETURN_IF_ERROR(copy_to(range.end));
      if (hash_.digest() == range.hash) continue;
      return file_error(
          ErrorCode::corrupt, "wrong checksum of the model that is copied", from_.path(), range.begin,
          ", offset " + std::to_string(range.begin) + ": " + checked.name_of_owner(range.owner) +
              ", expected " + std::to_string(range.hash) + ", found " + std::to_string(hash_.digest()) +
              "; check it with colibri verify, or convert it again");
    }
    COLIBRI_RETURN_IF_ERROR(copy_to(from_.size()));
    COLIBRI_RETURN_IF_ERROR(to_.resize(from_.size()));
    return to_.sync();
  }
  Sha256Digest sha256() const { return sha_.digest(); }
  std::uint64_t kept_bytes() const noexcept { return kept_bytes_; }

 private:
  // What a former run has written of the range is right: it is passed over.
  Result<bool> keep(const Checked& range) {
    if (to_.size() < range.end) return false;
    const Sha256Stream before = sha_;
    hash_.reset();
    for (std::uint64_t at = range.begin; at < range.end;) {
      const auto piece = piece_to(at, range.end);
      COLIBRI_RETURN_IF_ERROR(to_.read_at(at, piece));
      hash_.update(piece);
      sha_.update(piece);
      at += piece.size();
    }
    if (hash_.digest() != range.hash) {
      sha_ = before;
      return false;
    }
    COLIBRI_RETURN_IF_ERROR(moved_(range.end - range.begin));
    kept_bytes_ += range.end - range.begin;
    position_ = range.end;
    return true;
  }

  Status copy_to(std::uint64_t end) {
    while (position_ < end) {
      const auto piece = piece_to(position_, end);
      COLIBRI_RETURN_IF_ERROR(from_.read_at(position_, piece));
      hash_.update(piece);
      sha_.update(piece);
      COLIBRI_RETURN_IF_ERROR(to_.write_at(position_, piece));
      position_ += piece.size();
      write_behind_.advance(to_, position_);
      COLIBRI_RETURN_IF_ERROR(moved_(piece.size()));
    }
    return Status::ok();
  }

  std::span<std::byte> piece_to(std::uint64_t begin, std::uint64_t end) {
    return std::span(buffer_).first(std::min<std::uint64_t>(buffer_.size(), end - begin));
  }

  const FileHandle& from_;
  const FileHandle& to_;
  std::function<Status(std::uint64_t)> moved_;
  std::vector<std::byte> buffer_;
  Sha256Stream sha_;
  Xxh3Stream hash_;
  WriteBehind write_behind_;
  std::uint64_t position_ = 0;
  std::uint64_t kept_bytes_ = 0;
};

// The model that is copied, opened and checked.
struct Source {
  fs::path folder;
  std::shared_ptr<const Container> container;
  std::string manifest_text;
  Manifest manifest;
  std::uint64_t bytes = 0;
};

Result<Source> open_source(const fs::path& folder) {
  Source source;
  source.folder = folder;
  COLIBRI_ASSIGN_OR_RETURN(source.container, Container::open(folder));
  const fs::path path = folder / kManifestFile;
  COLIBRI_ASSIGN_OR_RETURN(source.manifest_text, read_text_file(path, kMaxManifestBytes));
  COLIBRI_ASSIGN_OR_RETURN(source.manifest, manifest_from_json(source.manifest_text, path));
  for (const ManifestFile& file : source.manifest.files) {
    const auto sum = checked_add(source.bytes, file.bytes);
    if (!sum) return Status(ErrorCode::corrupt, "sizes of files are too large: " + path.string());
    source.bytes = *sum;
  }
  return source;
}

// Without links and dots, as far as it exists.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path result = fs::weakly_canonical(fs::absolute(path, error), error);
  return result.has_filename() ? result : result.parent_path();
}

Status check_target(const fs::path& model, const fs::path& folder) {
  const fs::path from = resolved(model), to = resolved(folder);
  const bool inside = std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first == from.end();
  if (!inside) return Status::ok();
  return {ErrorCode::invalid_input, "a model cannot be copied into itself: " + folder.string() + " lies in " +
                                        model.string() + "; name a folder of another drive"};
}

// The folder holds a whole copy of this model.
bool is_there(const Source& source, const fs::path& folder) {
  const Result<std::string> text = read_text_file(folder / kManifestFile, kMaxManifestBytes);
  return text && *text == source.manifest_text && Container::open(folder).is_ok();
}

Status check_space(const Source& source, const fs::path& folder, const fs::path& partial) {
  FreeSpace space;
  space.need(folder, kSpaceReserve);
  for (const ManifestFile& file : source.manifest.files) {
    space.need(folder, file.bytes, partial / file.name);
  }
  return space.check();
}

Status copy_files(const Source& source, const fs::path& partial, const CopyOptions& options,
                  CopyReport& report) {
  std::uint64_t done = 0;
  const auto moved = [&](std::uint64_t bytes) -> Status {
    done += bytes;
    if (options.progress) options.progress(done, source.bytes);
    if (options.cancelled && options.cancelled()) {
      return {ErrorCode::cancelled, "the copy was stopped; the same call goes on where it ended"};
    }
    return {};
  };
  for (const ManifestFile& listed : source.manifest.files) {
    COLIBRI_ASSIGN_OR_RETURN(const FileHandle from,
                             FileHandle::open_for_reading(source.folder / listed.name));
    if (from.size() != listed.bytes) {
      return file_error(ErrorCode::corrupt, "file of the model has the wrong size", from.path(),
                        Status::kNoOffset,
                        ", expected " + std::to_string(listed.bytes) + " bytes, found " +
                            std::to_string(from.size()) + "; convert the model again");
    }
    COLIBRI_ASSIGN_OR_RETURN(const FileHandle to, FileHandle::open_for_writing(partial / listed.name));
    FileCopy copy(from, to, moved);
    COLIBRI_RETURN_IF_ERROR(copy.copy(ranges_of(*source.container, listed.name)));
    report.kept_bytes += copy.kept_bytes();
    if (copy.sha256() == listed.sha256) continue;
    return file_error(ErrorCode::corrupt, "wrong SHA-256 of a file of the model that is copied", from.path(),
                      Status::kNoOffset,
                      ", expected " + to_hex(listed.sha256) + ", found " + to_hex(copy.sha256()) +
                          "; check it with colibri verify, or convert it again");
  }
  return Status::ok();
}

Result<CopyReport> copy(const fs::path& model, const fs::path& folder, const CopyOptions& options) {
  COLIBRI_ASSIGN_OR_RETURN(const Source source, open_source(model));
  COLIBRI_RETURN_IF_ERROR(check_target(model, folder));
  CopyReport report;
  report.bytes = source.bytes;
  if (!options.force && is_there(source, folder)) {
    report.was_there = true;
    return report;
  }
  const std::string identity =
      "manifest " + to_hex(sha256(std::as_bytes(std::span(source.manifest_text)))) + "\n";
  COLIBRI_ASSIGN_OR_RETURN(OutputFolder output,
                           OutputFolder::open(folder, identity, options.force, options.log, {}, kCopyWork));
  if (output.complete()) {
    COLIBRI_RETURN_IF_ERROR(output.publish());
    report.kept_bytes = report.bytes;
    return report;
  }
  if (Status room = check_space(source, folder, output.partial()); !room) {
    if (!output.resumed()) output.discard();
    return room;
  }
  if (const FileSystem target = file_system_of(folder); target.network && options.log) {
    options.log("the copy goes to a network file system (" + target.name + "): " + folder.string() +
                "; name a folder of a local drive");
  }
  COLIBRI_RETURN_IF_ERROR(copy_files(source, output.partial(), options, report));
  COLIBRI_RETURN_IF_ERROR(write_text_file(output.partial() / kManifestFile, source.manifest_text));
  std::vector<std::string> names{kManifestFile};
  for (const ManifestFile& file : source.manifest.files) names.push_back(file.name);
  COLIBRI_RETURN_IF_ERROR(output.mark_complete(std::move(names)));
  COLIBRI_RETURN_IF_ERROR(output.publish());
  return report;
}

}  // namespace

Result<CopyReport> copy_container(const fs::path& model, const fs::path& folder, const CopyOptions& options) {
  try {
    return copy(model, folder, options);
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::out_of_memory, "no memory to copy the model: " + model.string());
  } catch (const std::exception& error) {
    return Status(ErrorCode::internal, "cannot copy the model: " + model.string() + ": " + error.what());
  }
}

}  // namespace colibri
