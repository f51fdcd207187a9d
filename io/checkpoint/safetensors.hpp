// safetensors files: reading with full checks, and writing.
//
// Format: u64 little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, data.
// Offsets count from the end of the header, so tensors are not aligned. Everything in a header is
// checked at open against the file's size, with the limits of the reference reader
// (https://github.com/huggingface/safetensors): header up to 100 MB, no overlap, no gap, no rest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/container/file_handle.hpp"
#include "io/status.hpp"

namespace colibri {

enum class TensorDtype : std::uint8_t { f32, f16, bf16, other };

struct TensorInfo {
  std::string name;
  std::string dtype_name;  // as in the file: "BF16"
  TensorDtype dtype = TensorDtype::other;
  std::vector<std::uint64_t> shape;
  std::uint64_t elements = 0;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t bytes = 0;
};

// "[3, 4]"
std::string shape_to_string(std::span<const std::uint64_t> shape);

// Immutable and thread-safe after open.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return file_.path(); }
  const FileHandle& file() const noexcept { return file_; }
  // xxh3-64 of the header: changes with every name, type, shape or place.
  std::uint64_t header_hash() const noexcept { return header_hash_; }
  std::span<const TensorInfo> tensors() const noexcept { return tensors_; }  // in the order of the data
  const TensorInfo* find(std::string_view name) const noexcept;              // null when absent

  // All values as f32; F32, F16 and BF16 only.
  Result<std::vector<float>> read_f32(std::string_view name) const;
  // values.size() elements from `first` of a tensor of this file.
  Status read_f32(const TensorInfo& tensor, std::uint64_t first, std::span<float> values) const;

 private:
  SafetensorsFile(FileHandle file, std::uint64_t header_hash, std::vector<TensorInfo> tensors);

  FileHandle file_;
  std::uint64_t header_hash_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // views into tensors_
};

// Collects f32 tensors and writes them in the order they were added.
class SafetensorsWriter {
 public:
  // Copies `values`; their number must be the product of `shape`, the name new. Broken rules are
  // reported by write().
  void add(std::string name, std::vector<std::uint64_t> shape, std::span<const float> values);
  Status write(const std::filesystem::path& path) const;

 private:
  struct Entry {
    std::string name;
    std::vector<std::uint64_t> shape;
    std::vector<float> values;
  };
  std::vector<Entry> entries_;
};

}  // namespace colibri
