// The table of dense tensors at the end of model.bin.
#include <cstring>

#include "io/container/container_files.hpp"
#include "io/container/container_format.hpp"
#include "io/container/little_endian.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kTensorTableHeadBytes = 16;
constexpr std::uint64_t kTensorEntryBytes = 48;
constexpr std::uint64_t kLargestName = 256;
constexpr std::size_t kCountAt = 8;

Status damaged_tensor_table(const std::filesystem::path& file, std::uint64_t offset,
                            const std::string& what) {
  return file_error(ErrorCode::corrupt, "damaged tensor table", file, offset,
                    ": " + what + "; convert the model again");
}

}  // namespace

std::uint64_t dense_tensor_bytes(const DenseTensor& tensor) noexcept {
  if (tensor.packed) return kernels::packed_shape(tensor.format, tensor.rows, tensor.columns).bytes;
  return std::uint64_t{tensor.columns} * sizeof(float);
}

Result<std::uint64_t> place_dense_tensors(std::span<DenseTensor> tensors) {
  std::uint64_t end = 0;
  for (DenseTensor& tensor : tensors) {
    tensor.offset = end;
    tensor.bytes = dense_tensor_bytes(tensor);
    const auto next = checked_add(end, tensor.bytes);
    const auto aligned = next ? checked_round_up(*next, kTensorAlignment) : std::nullopt;
    if (!aligned) {
      return Status(ErrorCode::invalid_input, "the dense tensors are too large in sum, at " + tensor.name);
    }
    end = *aligned;
  }
  return end;
}

std::vector<std::byte> encode_tensor_table(std::span<const DenseTensor> tensors,
                                           std::uint64_t payload_bytes) {
  std::uint32_t names_bytes = 0;
  for (const DenseTensor& tensor : tensors) names_bytes += static_cast<std::uint32_t>(tensor.name.size());
  const std::uint32_t padded_names = (names_bytes + 7) / 8 * 8;

  std::vector<std::byte> table;
  table.reserve(kTensorTableHeadBytes + tensors.size() * kTensorEntryBytes + padded_names);
  append_little_endian(table, payload_bytes);
  append_little_endian(table, static_cast<std::uint32_t>(tensors.size()));
  append_little_endian(table, padded_names);
  std::uint32_t name_offset = 0;
  for (const DenseTensor& tensor : tensors) {
    append_little_endian(table, name_offset);
    append_little_endian(table, static_cast<std::uint32_t>(tensor.name.size()));
    append_little_endian(table, std::uint32_t{tensor.packed});
    append_little_endian(table, static_cast<std::uint32_t>(tensor.format));
    append_little_endian(table, tensor.rows);
    append_little_endian(table, tensor.columns);
    append_little_endian(table, tensor.offset);
    append_little_endian(table, tensor.bytes);
    append_little_endian(table, std::uint64_t{0});
    name_offset += static_cast<std::uint32_t>(tensor.name.size());
  }
  for (const DenseTensor& tensor : tensors) {
    const auto name = std::as_bytes(std::span(tensor.name));
    table.insert(table.end(), name.begin(), name.end());
  }
  table.resize(table.size() + padded_names - names_bytes);
  return table;
}

Result<TensorTable> decode_tensor_table(std::span<const std::byte> table, std::uint64_t payload_limit,
                                        const std::filesystem::path& file) {
  const std::uint64_t begin = kPageBytes + payload_limit;
  if (table.size() < kTensorTableHeadBytes + kHashBytes) {
    return damaged_tensor_table(file, begin,
                                "it has " + std::to_string(table.size()) + " bytes, expected at least " +
                                    std::to_string(kTensorTableHeadBytes + kHashBytes));
  }
  const std::span<const std::byte> body = table.first(table.size() - kHashBytes);
  const auto stored = load_little_endian<std::uint64_t>(body.data() + body.size());
  if (const std::uint64_t computed = xxh3_64(body); computed != stored) {
    return damaged_tensor_table(
        file, begin + body.size(),
        "expected checksum " + std::to_string(stored) + ", found " + std::to_string(computed));
  }

  TensorTable result;
  result.payload_bytes = load_little_endian<std::uint64_t>(table.data());
  const auto count = load_little_endian<std::uint32_t>(table.data() + kCountAt);
  const auto names_bytes = load_little_endian<std::uint32_t>(table.data() + 12);
  if (result.payload_bytes != payload_limit) {
    return damaged_tensor_table(file, begin,
                                "expected a payload of " + std::to_string(payload_limit) + " bytes, found " +
                                    std::to_string(result.payload_bytes));
  }
  // count and names_bytes are 32-bit: no product or sum here can wrap 64 bits.
  const std::uint64_t names_at = kTensorTableHeadBytes + count * kTensorEntryBytes;
  const std::uint64_t hashes_at = names_at + names_bytes;
  if (hashes_at + count * kHashBytes != body.size()) {
    return damaged_tensor_table(file, begin + kCountAt,
                                "expected " + std::to_string(hashes_at + count * kHashBytes) + " bytes for " +
                                    std::to_string(count) + " tensors, found " + std::to_string(body.size()));
  }

  std::uint64_t previous_end = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::byte* entry = table.data() + kTensorTableHeadBytes + i * kTensorEntryBytes;
    const std::uint64_t entry_at = begin + kTensorTableHeadBytes + i * kTensorEntryBytes;
    const auto name_offset = load_little_endian<std::uint32_t>(entry);
    const auto name_length = load_little_endian<std::uint32_t>(entry + 4);
    const auto packed = load_little_endian<std::uint32_t>(entry + 8);
    const auto format = load_little_endian<std::uint32_t>(entry + 12);
    const std::string place = "tensor " + std::to_string(i);
    if (name_length > kLargestName || std::uint64_t{name_offset} + name_length > names_bytes) {
      return damaged_tensor_table(file, entry_at, place + " has its name outside the names");
    }
    if (packed > 1 || format >= kernels::kWeightFormats) {
      return damaged_tensor_table(file, entry_at,
                                  place + " has the unknown format " + std::to_string(format));
    }
    DenseTensor tensor;
    tensor.name.assign(reinterpret_cast<const char*>(table.data() + names_at + name_offset), name_length);
    tensor.packed = packed == 1;
    tensor.format = static_cast<kernels::WeightFormat>(format);
    tensor.rows = load_little_endian<std::uint32_t>(entry + 16);
    tensor.columns = load_little_endian<std::uint32_t>(entry + 20);
    tensor.offset = load_little_endian<std::uint64_t>(entry + 24);
    tensor.bytes = load_little_endian<std::uint64_t>(entry + 32);
    // Bounds of any shape that a valid spec can ask for; with them dense_tensor_bytes cannot wrap.
    if (tensor.rows == 0 || tensor.rows > kMaxVocabSize || tensor.columns == 0 ||
        tensor.columns > kMaxVocabSize || (!tensor.packed && tensor.rows != 1)) {
      return damaged_tensor_table(file, entry_at,
                                  tensor.name + " has the shape [" + std::to_string(tensor.rows) + ", " +
                                      std::to_string(tensor.columns) + "]");
    }
    if (tensor.bytes != dense_tensor_bytes(tensor)) {
      return damaged_tensor_table(file, entry_at,
                                  tensor.name + " expected " + std::to_string(dense_tensor_bytes(tensor)) +
                                      " bytes, found " + std::to_string(tensor.bytes));
    }
    const auto end = checked_add(tensor.offset, tensor.bytes);
    if (tensor.offset % kTensorAlignment != 0 || tensor.offset < previous_end || !end ||
        *end > result.payload_bytes) {
      return damaged_tensor_table(
          file, entry_at, tensor.name + " lies at " + std::to_string(tensor.offset) + " outside its place");
    }
    previous_end = *end;
    tensor.checksum = load_little_endian<std::uint64_t>(table.data() + hashes_at + i * kHashBytes);
    result.tensors.push_back(std::move(tensor));
  }
  return result;
}

Status check_tensor_hash(const DenseTensor& tensor, std::uint64_t computed,
                         const std::filesystem::path& file) {
  if (computed == tensor.checksum) return Status::ok();
  const std::uint64_t offset = kPageBytes + tensor.offset;
  return file_error(ErrorCode::corrupt, "wrong checksum of a dense tensor", file, offset,
                    ", offset " + std::to_string(offset) + ": " + tensor.name + ", expected " +
                        std::to_string(tensor.checksum) + ", found " + std::to_string(computed) +
                        "; copy or convert the model again");
}

}  // namespace colibri
