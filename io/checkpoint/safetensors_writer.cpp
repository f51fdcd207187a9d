// Writing safetensors files from memory.
#include <utility>

#include "io/checkpoint/safetensors.hpp"
#include "io/checkpoint/safetensors_output.hpp"

namespace colibri {

void SafetensorsWriter::add(std::string name, std::vector<std::uint64_t> shape,
                            std::span<const float> values) {
  entries_.push_back({std::move(name), std::move(shape), {values.begin(), values.end()}});
}

Status SafetensorsWriter::write(const std::filesystem::path& path) const {
  std::vector<OutputTensor> tensors;
  for (const Entry& entry : entries_) tensors.push_back({entry.name, entry.shape});
  auto layout = lay_out_safetensors(tensors);
  if (!layout) return std::move(layout).status().at(path.string());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::uint64_t elements = (layout->offsets[i + 1] - layout->offsets[i]) / sizeof(float);
    if (elements == entries_[i].values.size()) continue;
    return {ErrorCode::internal, "tensor to write has the wrong size: " + entries_[i].name + " of shape " +
                                     shape_to_string(entries_[i].shape) + " has " +
                                     std::to_string(entries_[i].values.size()) + " values"};
  }
  COLIBRI_ASSIGN_OR_RETURN(const FileHandle file, FileHandle::open_for_writing(path));
  COLIBRI_RETURN_IF_ERROR(file.resize(0));
  COLIBRI_RETURN_IF_ERROR(file.write_at(0, layout->head));
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    COLIBRI_RETURN_IF_ERROR(file.write_at(layout->offsets[i], std::as_bytes(std::span(entries_[i].values))));
  }
  return Status::ok();
}

}  // namespace colibri
