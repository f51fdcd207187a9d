// Writing a safetensors file of f32 tensors piece by piece, in any order.
//
// Names and shapes are known beforehand, so the header is written first and nothing is held in
// memory. The file has a temporary name until finish(): whoever finds it under its own name finds
// it whole, and a file that was there before stays as it was when the work fails.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/container/file_handle.hpp"
#include "io/status.hpp"

namespace colibri {

struct OutputTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
};

// The length word and the header of a file that holds these tensors as f32, in this order, padded so that the
// data is aligned; and where each tensor then lies in the file, with the end of the data behind the last one.
struct SafetensorsLayout {
  std::vector<std::byte> head;
  std::vector<std::uint64_t> offsets;  // [tensors + 1]
};
// The error says which name is there twice, or which size overflows.
Result<SafetensorsLayout> lay_out_safetensors(std::span<const OutputTensor> tensors);

class SafetensorsOutput {
 public:
  // The name that the file has until it is finished.
  static std::filesystem::path temporary_name(const std::filesystem::path& path);

  // Creates the temporary file at its full size. A link is followed, so that what it points to is replaced.
  static Result<std::unique_ptr<SafetensorsOutput>> create(const std::filesystem::path& path,
                                                           std::span<const OutputTensor> tensors);
  // Removes the temporary file, unless it was finished.
  ~SafetensorsOutput();
  SafetensorsOutput(const SafetensorsOutput&) = delete;
  SafetensorsOutput& operator=(const SafetensorsOutput&) = delete;

  // Elements [first, first + values.size()) of a tensor, which must lie inside it.
  Status write(std::size_t tensor, std::uint64_t first, std::span<const float> values);
  // Brings everything to the device and gives the file its name. Pieces that were never written are zeros.
  Status finish();

 private:
  SafetensorsOutput(std::filesystem::path path, FileHandle file, std::vector<std::uint64_t> offsets)
      : path_(std::move(path)), file_(std::move(file)), offsets_(std::move(offsets)) {}

  std::filesystem::path path_;
  FileHandle file_;
  std::vector<std::uint64_t> offsets_;  // [tensors + 1] in the file
  bool finished_ = false;
};

}  // namespace colibri
