// Opening a safetensors file and reading values as f32.
#include "io/checkpoint/safetensors.hpp"

#include <cstring>
#include <new>

#include "io/checkpoint/safetensors_header.hpp"
#include "io/container/checksum.hpp"
#include "io/container/little_endian.hpp"
#include "kernels/number_format.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference reader
constexpr std::size_t kPieceElements = 64U << 10;  // converted at a time, so that raw bytes stay in cache

void widen(const std::byte* raw, TensorDtype dtype, std::span<float> values) {
  if (dtype == TensorDtype::f32) {
    std::memcpy(values.data(), raw, values.size_bytes());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, raw + i * sizeof(half), sizeof(half));
    values[i] = dtype == TensorDtype::bf16 ? kernels::bf16_to_f32(half) : kernels::f16_to_f32(half);
  }
}

Status damaged(const char* what, const std::filesystem::path& path, std::uint64_t offset,
               const std::string& rest) {
  return Status(ErrorCode::corrupt, what + (": " + path.string()) + rest).in_file(path.string(), offset);
}

}  // namespace

std::string shape_to_string(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

SafetensorsFile::SafetensorsFile(FileHandle file, std::uint64_t header_hash, std::vector<TensorInfo> tensors)
    : file_(std::move(file)), header_hash_(header_hash), tensors_(std::move(tensors)) {
  by_name_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  COLIBRI_ASSIGN_OR_RETURN(FileHandle file, FileHandle::open_for_reading(path));
  if (file.size() < kLengthBytes) {
    return damaged("safetensors file is too short", path, file.size(),
                   ", expected at least " + std::to_string(kLengthBytes) + " bytes, found " +
                       std::to_string(file.size()));
  }
  std::array<std::byte, kLengthBytes> length_bytes;
  COLIBRI_RETURN_IF_ERROR(file.read_at(0, length_bytes));
  const auto length = load_little_endian<std::uint64_t>(length_bytes.data());
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes) {
    return damaged(
        "safetensors header is too long", path, 0,
        ", expected at most " + std::to_string(std::min(kMaxHeaderBytes, file.size() - kLengthBytes)) +
            " bytes, found " + std::to_string(length) + "; the file is truncated, or is no safetensors file");
  }
  try {
    std::string header(length, '\0');
    COLIBRI_RETURN_IF_ERROR(file.read_at(kLengthBytes, std::as_writable_bytes(std::span(header))));
    const std::uint64_t data_offset = kLengthBytes + length;
    COLIBRI_ASSIGN_OR_RETURN(
        std::vector<TensorInfo> tensors,
        parse_safetensors_header(header, data_offset, file.size() - data_offset, path.string()));
    const std::uint64_t hash = xxh3_64(std::as_bytes(std::span(header)));
    return SafetensorsFile(std::move(file), hash, std::move(tensors));
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::out_of_memory, "no memory for the safetensors header: " + path.string())
        .in_file(path.string());
  } catch (const std::exception& error) {
    return damaged("damaged safetensors header", path, kLengthBytes, std::string(": ") + error.what());
  }
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Result<std::vector<float>> SafetensorsFile::read_f32(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) {
    return Status(ErrorCode::not_found, "no such tensor: " + path().string() + ": " + std::string(name))
        .in_file(path().string());
  }
  try {
    // Bounded by the file's size, which the header was checked against.
    std::vector<float> values(tensor->elements);
    COLIBRI_RETURN_IF_ERROR(read_f32(*tensor, 0, values));
    return values;
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::out_of_memory,
                  "no memory for tensor " + std::string(name) + " of " + path().string());
  }
}

Status SafetensorsFile::read_f32(const TensorInfo& tensor, std::uint64_t first,
                                 std::span<float> values) const {
  if (tensor.dtype == TensorDtype::other) {
    return Status(ErrorCode::unsupported, "cannot read tensor as f32: " + path().string() + ": " +
                                              tensor.name + " has dtype " + tensor.dtype_name +
                                              "; expected F32, F16 or BF16")
        .in_file(path().string(), tensor.offset);
  }
  const std::size_t width = tensor.dtype == TensorDtype::f32 ? 4 : 2;
  std::vector<std::byte> raw(std::min(values.size(), kPieceElements) * width);
  for (std::size_t done = 0; done < values.size();) {
    const auto piece = values.subspan(done, std::min(kPieceElements, values.size() - done));
    const auto bytes = std::span(raw).first(piece.size() * width);
    COLIBRI_RETURN_IF_ERROR(file_.read_at(tensor.offset + (first + done) * width, bytes));
    widen(bytes.data(), tensor.dtype, piece);
    done += piece.size();
  }
  return Status::ok();
}

}  // namespace colibri
