// Writing safetensors files.
#include <nlohmann/json.hpp>
#include <set>

#include "io/checkpoint/safetensors.hpp"
#include "io/container/little_endian.hpp"

namespace colibri {

void SafetensorsWriter::add(std::string name, std::vector<std::uint64_t> shape,
                            std::span<const float> values) {
  entries_.push_back({std::move(name), std::move(shape), {values.begin(), values.end()}});
}

Status SafetensorsWriter::write(const std::filesystem::path& path) const {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const Entry& entry : entries_) {
    std::optional<std::uint64_t> elements = 1;
    for (const std::uint64_t size : entry.shape)
      elements = elements ? checked_mul(*elements, size) : elements;
    if (!elements || *elements != entry.values.size()) {
      return {ErrorCode::internal, "tensor to write has the wrong size: " + entry.name + " of shape " +
                                       shape_to_string(entry.shape) + " has " +
                                       std::to_string(entry.values.size()) + " values"};
    }
    if (!names.insert(entry.name).second) {
      return {ErrorCode::internal, "tensor to write was added twice: " + entry.name};
    }
    const std::uint64_t bytes = *elements * sizeof(float);
    header[entry.name] = {
        {"dtype", "F32"}, {"shape", entry.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {  // a name that is not UTF-8
    return {ErrorCode::invalid_input,
            "cannot write safetensors header: " + path.string() + ": " + error.what()};
  }
  text.append((8 - text.size() % 8) % 8, ' ');  // readers expect aligned data

  COLIBRI_ASSIGN_OR_RETURN(const FileHandle file, FileHandle::open_for_writing(path));
  COLIBRI_RETURN_IF_ERROR(file.resize(0));
  std::vector<std::byte> length;
  append_little_endian(length, static_cast<std::uint64_t>(text.size()));
  COLIBRI_RETURN_IF_ERROR(file.write_at(0, length));
  COLIBRI_RETURN_IF_ERROR(file.write_at(length.size(), std::as_bytes(std::span(text))));
  std::uint64_t position = length.size() + text.size();
  for (const Entry& entry : entries_) {
    COLIBRI_RETURN_IF_ERROR(file.write_at(position, std::as_bytes(std::span(entry.values))));
    position += entry.values.size() * sizeof(float);
  }
  return Status::ok();
}

}  // namespace colibri
