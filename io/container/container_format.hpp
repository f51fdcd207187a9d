// The binary format of model.bin, experts.bin and the parts of the experts, version 1. All integers are
// little-endian.
//
// Header, 4096 bytes:
//     0  char[8]   magic "COLIBRI\0"
//     8  u32       format version
//    12  u32       0x01020304, so that a byte-swapped file is told apart
//    16  u32       kind: 1 model.bin, 2 experts.bin, 3 a part of the experts
//    20  u32       index of the part, else 0
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
//     u32 chunk bytes, u32 number of expert files N, u64 payload bytes, u64 record bytes, u64 records,
//     then per record, in (layer, expert) order, 32 bytes:
//     u32 file index, u32 layer, u32 expert, u32 layout id (the weight format), u64 offset, u64 length.
//     Hashes: per record, xxh3-64 of each chunk of the payload; the last chunk may be short.
//
// With N = 1 the records lie in experts.bin, between header and table. With N > 1 experts.bin has no
// records: that of expert e lies in part e % N, the file behind the link experts.0.bin, experts.1.bin, ...
// A part is written like experts.bin with the records and the table of its own experts, in the same
// order; its hashes repeat those of experts.bin, so that a part of other weights is told apart at open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/container/checksum.hpp"
#include "io/container/container.hpp"
#include "io/status.hpp"

namespace colibri {

inline constexpr std::uint64_t kTensorAlignment = 64;
inline constexpr std::uint64_t kHashBytes = sizeof(std::uint64_t);
inline constexpr std::uint64_t kSpecDigestAt = 24;  // in the header

enum class BinaryKind : std::uint32_t { model = 1, experts = 2, expert_part = 3 };

struct BinaryHeader {
  BinaryKind kind = BinaryKind::model;
  Sha256Digest spec_digest{};
  std::uint64_t table_offset = 0;
  std::uint64_t table_bytes = 0;
  std::uint64_t file_length = 0;
  std::uint32_t part = 0;  // of kind expert_part
};

std::array<std::byte, kPageBytes> encode_header(const BinaryHeader& header);
// `file` names the file in errors, `actual_length` is its size on disk.
Result<BinaryHeader> decode_header(std::span<const std::byte> bytes, BinaryKind kind,
                                   std::uint64_t actual_length, const std::filesystem::path& file);

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
// Checks the table's checksum, then every entry against the payload and its own shape. The table follows the
// payload, which takes `payload_limit` bytes.
Result<TensorTable> decode_tensor_table(std::span<const std::byte> table, std::uint64_t payload_limit,
                                        const std::filesystem::path& file);

// Not ok, naming file, offset and tensor, when `computed` is not the tensor's checksum.
Status check_tensor_hash(const DenseTensor& tensor, std::uint64_t computed,
                         const std::filesystem::path& file);

// Which records a file lists and where they lie; all have the same size.
struct PageTableShape {
  std::uint32_t files = 1;
  std::optional<std::uint32_t> part;  // of a part: its index; then records, offsets and length are its own
  std::uint64_t records = 0;
  std::uint32_t chunk_bytes = 0;
  std::uint64_t chunks_per_record = 0;
  std::uint64_t static_bytes = 0;
  std::uint64_t table_bytes = 0;
  std::uint64_t table_offset = 0;
  std::uint64_t file_length = 0;
};
// Of experts.bin, for records in `files` files; files <= num_experts.
Result<PageTableShape> page_table_shape(const ModelSpec& spec, const ExpertLayout& layout,
                                        std::uint32_t files = 1);
Result<PageTableShape> part_table_shape(const ModelSpec& spec, const ExpertLayout& layout,
                                        std::uint32_t files, std::uint32_t part);

struct RecordPlace {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
};
// `moe_ordinal`: position of the layer among those with experts.
RecordPlace record_place(const ModelSpec& spec, const ExpertLayout& layout, std::uint32_t files,
                         std::uint32_t moe_ordinal, std::uint32_t expert) noexcept;

// What an intact table says is its number of expert files; 1 when it is damaged or the number is impossible,
// so that decoding it as a table of one file says what is wrong.
std::uint32_t expert_file_count(std::span<const std::byte> table, const ModelSpec& spec) noexcept;

// Static part of the table of experts.bin or of a part.
std::vector<std::byte> encode_page_table(const ModelSpec& spec, const ExpertLayout& layout,
                                         const PageTableShape& shape);
// With the chunk hashes of all records, and the table's checksum.
std::vector<std::byte> encode_whole_table(const ModelSpec& spec, const ExpertLayout& layout,
                                          const PageTableShape& shape,
                                          std::span<const std::uint64_t> chunk_hashes);
// Checks the table's checksum and that its static part is what the spec demands; returns the chunk hashes
// of all records, chunks_per_record each.
Result<std::vector<std::uint64_t>> decode_page_table(std::span<const std::byte> table, const ModelSpec& spec,
                                                     const ExpertLayout& layout, const PageTableShape& shape,
                                                     const std::filesystem::path& file);

}  // namespace colibri
