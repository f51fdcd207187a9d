// The layout of a file that is written, and writing it through a temporary name.
#include "io/checkpoint/safetensors_output.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "io/checkpoint/safetensors.hpp"
#include "io/container/little_endian.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

// A link is followed once, so that a rename replaces the file and not the link.
fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path resolved = fs::canonical(path, error);
  return error ? path : resolved;
}

}  // namespace

Result<SafetensorsLayout> lay_out_safetensors(std::span<const OutputTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::set<std::string_view> names;
  SafetensorsLayout layout;
  layout.offsets.push_back(0);
  for (const OutputTensor& tensor : tensors) {
    std::optional<std::uint64_t> bytes = sizeof(float);
    for (const std::uint64_t size : tensor.shape) bytes = bytes ? checked_mul(*bytes, size) : bytes;
    const std::uint64_t begin = layout.offsets.back();
    const std::optional<std::uint64_t> end = bytes ? checked_add(begin, *bytes) : bytes;
    if (!end) {
      return Status(ErrorCode::capacity, "a tensor to write is too large: " + tensor.name + " of shape " +
                                             shape_to_string(tensor.shape));
    }
    if (!names.insert(tensor.name).second) {
      return Status(ErrorCode::internal, "tensor to write was added twice: " + tensor.name);
    }
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, *end}}};
    layout.offsets.push_back(*end);
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {  // a name that is not UTF-8
    return Status(ErrorCode::invalid_input, std::string("cannot make a safetensors header: ") + error.what());
  }
  text.append((8 - text.size() % 8) % 8, ' ');  // readers expect aligned data
  append_little_endian(layout.head, static_cast<std::uint64_t>(text.size()));
  const auto bytes = std::as_bytes(std::span(text));
  layout.head.insert(layout.head.end(), bytes.begin(), bytes.end());
  for (std::uint64_t& offset : layout.offsets) {
    const std::optional<std::uint64_t> moved = checked_add<std::uint64_t>(offset, layout.head.size());
    if (!moved) return Status(ErrorCode::capacity, "the tensors to write are too large for a file");
    offset = *moved;
  }
  return layout;
}

fs::path SafetensorsOutput::temporary_name(const fs::path& path) {
  fs::path name = real_path(path);
  name += ".partial";
  return name;
}

Result<std::unique_ptr<SafetensorsOutput>> SafetensorsOutput::create(const fs::path& path,
                                                                     std::span<const OutputTensor> tensors) {
  COLIBRI_ASSIGN_OR_RETURN(SafetensorsLayout layout, lay_out_safetensors(tensors));
  COLIBRI_ASSIGN_OR_RETURN(FileHandle file, FileHandle::open_for_writing(temporary_name(path)));
  COLIBRI_RETURN_IF_ERROR(file.lock());
  std::unique_ptr<SafetensorsOutput> output(
      new SafetensorsOutput(real_path(path), std::move(file), std::move(layout.offsets)));
  // Shortened first: what an earlier process has left must not show through pieces that are not written.
  COLIBRI_RETURN_IF_ERROR(output->file_.resize(0));
  COLIBRI_RETURN_IF_ERROR(output->file_.resize(output->offsets_.back()));
  COLIBRI_RETURN_IF_ERROR(output->file_.write_at(0, layout.head));
  return output;
}

SafetensorsOutput::~SafetensorsOutput() {
  std::error_code ignored;
  if (!finished_) fs::remove(file_.path(), ignored);
}

Status SafetensorsOutput::write(std::size_t tensor, std::uint64_t first, std::span<const float> values) {
  const std::uint64_t elements =
      tensor + 1 < offsets_.size() ? (offsets_[tensor + 1] - offsets_[tensor]) / sizeof(float) : 0;
  if (first > elements || values.size() > elements - first) {
    return {ErrorCode::internal, "a piece to write lies outside its tensor: " + path_.string() + ", tensor " +
                                     std::to_string(tensor) + ", element " + std::to_string(first)};
  }
  return file_.write_at(offsets_[tensor] + first * sizeof(float), std::as_bytes(values));
}

Status SafetensorsOutput::finish() {
  COLIBRI_RETURN_IF_ERROR(file_.sync());
  std::error_code error;
  fs::rename(file_.path(), path_, error);
  if (error) {
    return {ErrorCode::io, "cannot rename file: " + file_.path().string() + " to " + path_.string() + ": " +
                               error.message()};
  }
  finished_ = true;
  return sync_folder(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

}  // namespace colibri
