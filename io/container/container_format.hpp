// The binary format of model.bin and experts.bin, version 1. All integers are little-endian.
//
// Header, 4096 bytes:
//     0  char[8]   magic "COLIBRI\0"
//     8  u32       format version
//    12  u32       0x01020304, so that a byte-swapped file is told apart
//    16  u32       kind: 1 model.bin, 2 experts.bin
//    20  u32       0
//    24  u8[32]    SHA-256 of model_spec.json
//    56  u64       offset of the table
//    64  u64       bytes of the table
//    72  u64       length of the file; the table ends there
//    80  u64       xxh3-64 of the header with this field 0
//    88  zeros
// Everything in the header and in the static part of a table is known before the first weight is
// written, so a file can be written and hashed front to back.
//
// Table: static part, u64 hashes, u64 xxh3-64 of all table bytes before it.
//   Static part of model.bin (the payload starts at 4096):
//     u64 payload bytes, u32 tensor count, u32 bytes of names (a multiple of 8), then per tensor 48 bytes:
//     u32 offset of its name, u32 length of its name, u32 packed (0 or 1), u32 weight format,
//     u32 rows, u32 columns, u64 offset from the payload's start, u64 bytes, u64 0; then the names.
//     Hashes: xxh3-64 of each tensor's bytes.
//   Static part of experts.bin (the page table):
//     u32 chunk bytes, u32 number of expert files (1), u64 payload bytes, u64 record bytes, u64 records,
//     then per record, in (layer, expert) order, 32 bytes:
//     u32 file index, u32 layer, u32 expert, u32 layout id (the weight format), u64 offset, u64 length.
//     Hashes: per record, xxh3-64 of each chunk of the payload; the last chunk may be short.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/container/checksum.hpp"
#include "io/container/container.hpp"
#include "io/status.hpp"

namespace colibri {

inline constexpr std::uint64_t kTensorAlignment = 64;

enum class BinaryKind : std::uint32_t { model = 1, experts = 2 };

struct BinaryHeader {
  BinaryKind kind = BinaryKind::model;
  Sha256Digest spec_digest{};
  std::uint64_t table_offset = 0;
  std::uint64_t table_bytes = 0;
  std::uint64_t file_length = 0;
};

std::array<std::byte, kPageBytes> encode_header(const BinaryHeader& header);
// `file` names the file in errors, `actual_length` is its size on disk.
Result<BinaryHeader> decode_header(std::span<const std::byte> bytes, BinaryKind kind,
                                   std::uint64_t actual_length, const std::string& file);

// Gives every tensor its bytes and offset, in order; returns the payload bytes.
Result<std::uint64_t> place_dense_tensors(std::span<DenseTensor> tensors);
// Bytes of a tensor from its shape and format.
std::uint64_t dense_tensor_bytes(const DenseTensor& tensor) noexcept;

struct TensorTable {
  std::uint64_t payload_bytes = 0;
  std::vector<DenseTensor> tensors;
};

// Static part of model.bin's table.
std::vector<std::byte> encode_tensor_table(std::span<const DenseTensor> tensors, std::uint64_t payload_bytes);
// Checks the table's checksum, then every entry against the payload and its own shape.
Result<TensorTable> decode_tensor_table(std::span<const std::byte> table, std::uint64_t payload_limit,
                                        const std::string& file);

// Not ok, naming file, offset and tensor, when `computed` is not the tensor's checksum.
Status check_tensor_hash(const DenseTensor& tensor, std::uint64_t computed, const std::string& file);

// Where records lie; the same for every record, in (layer, expert) order.
struct PageTableShape {
  std::uint64_t records = 0;
  std::uint32_t chunk_bytes = 0;
  std::uint64_t chunks_per_record = 0;
  std::uint64_t static_bytes = 0;
  std::uint64_t table_bytes = 0;
  std::uint64_t table_offset = 0;
  std::uint64_t file_length = 0;
};
Result<PageTableShape> page_table_shape(const ModelSpec& spec, const ExpertLayout& layout);

// Static part of experts.bin's table.
std::vector<std::byte> encode_page_table(const ModelSpec& spec, const ExpertLayout& layout,
                                         const PageTableShape& shape);
// Checks the table's checksum and that its static part is what the spec demands; returns the chunk hashes
// of all records, chunks_per_record each.
Result<std::vector<std::uint64_t>> decode_page_table(std::span<const std::byte> table, const ModelSpec& spec,
                                                     const ExpertLayout& layout, const PageTableShape& shape,
                                                     const std::string& file);

}  // namespace colibri
