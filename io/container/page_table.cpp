// The page table at the end of experts.bin.
//
// Version 1 writes all records into one file at a fixed stride, so the static part follows from the
// spec; reading compares it byte for byte and has nothing left to trust.
#include <algorithm>

#include "io/container/container_format.hpp"
#include "io/container/little_endian.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kTableHeadBytes = 32;
constexpr std::uint64_t kEntryBytes = 32;
constexpr std::uint64_t kHashBytes = 8;
constexpr std::uint32_t kExpertFiles = 1;

Status damaged(const std::string& file, const std::string& what) {
  return {ErrorCode::corrupt, "damaged page table: " + file + ": " + what + "; convert the model again"};
}

}  // namespace

Result<PageTableShape> page_table_shape(const ModelSpec& spec, const ExpertLayout& layout) {
  PageTableShape shape;
  shape.chunk_bytes = spec.expert_chunk_size;
  // The limits of a valid spec keep these two far below 2^64: 2^10 layers, 2^12 experts, 2^42-byte records.
  shape.records = std::uint64_t{spec.num_moe_layers()} * spec.num_experts;
  shape.chunks_per_record = (layout.payload_bytes + shape.chunk_bytes - 1) / shape.chunk_bytes;
  shape.static_bytes = kTableHeadBytes + shape.records * kEntryBytes;
  const auto hashes = checked_product(shape.records, shape.chunks_per_record, kHashBytes);
  const auto records = checked_mul(shape.records, layout.record_bytes);
  const auto table_offset = records ? checked_add(*records, kPageBytes) : std::nullopt;
  const auto table_bytes = hashes ? checked_add(*hashes, shape.static_bytes + kHashBytes) : std::nullopt;
  const auto length = table_offset && table_bytes ? checked_add(*table_offset, *table_bytes) : std::nullopt;
  // Offsets are off_t for the system, hence 2^63.
  if (!length || *length > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return Status(ErrorCode::invalid_input,
                  "the expert records are too large in sum: " + std::to_string(shape.records) +
                      " records of " + std::to_string(layout.record_bytes) + " bytes");
  }
  shape.table_bytes = *table_bytes;
  shape.table_offset = *table_offset;
  shape.file_length = *length;
  return shape;
}

std::vector<std::byte> encode_page_table(const ModelSpec& spec, const ExpertLayout& layout,
                                         const PageTableShape& shape) {
  std::vector<std::byte> table;
  table.reserve(shape.static_bytes);
  append_little_endian(table, shape.chunk_bytes);
  append_little_endian(table, kExpertFiles);
  append_little_endian(table, layout.payload_bytes);
  append_little_endian(table, layout.record_bytes);
  append_little_endian(table, shape.records);
  std::uint64_t offset = kPageBytes;
  for (std::uint32_t layer = 0; layer < spec.num_layers(); ++layer) {
    if (!spec.layers[layer].moe) continue;
    for (std::uint32_t expert = 0; expert < spec.num_experts; ++expert) {
      append_little_endian(table, std::uint32_t{0});
      append_little_endian(table, layer);
      append_little_endian(table, expert);
      append_little_endian(table, static_cast<std::uint32_t>(layout.format));
      append_little_endian(table, offset);
      append_little_endian(table, layout.record_bytes);
      offset += layout.record_bytes;
    }
  }
  return table;
}

Result<std::vector<std::uint64_t>> decode_page_table(std::span<const std::byte> table, const ModelSpec& spec,
                                                     const ExpertLayout& layout, const PageTableShape& shape,
                                                     const std::string& file) {
  if (table.size() != shape.table_bytes) {
    return damaged(file, "expected " + std::to_string(shape.table_bytes) + " bytes, found " +
                             std::to_string(table.size()));
  }
  const std::span<const std::byte> body = table.first(table.size() - kHashBytes);
  const auto stored = load_little_endian<std::uint64_t>(body.data() + body.size());
  if (const std::uint64_t computed = xxh3_64(body); computed != stored) {
    return damaged(file,
                   "expected checksum " + std::to_string(stored) + ", found " + std::to_string(computed));
  }
  const std::vector<std::byte> expected = encode_page_table(spec, layout, shape);
  const auto difference = std::mismatch(expected.begin(), expected.end(), body.begin()).first;
  if (difference != expected.end()) {
    return damaged(file, "it differs from what model_spec.json demands, at byte " +
                             std::to_string(difference - expected.begin()));
  }
  std::vector<std::uint64_t> hashes(shape.records * shape.chunks_per_record);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    hashes[i] = load_little_endian<std::uint64_t>(body.data() + shape.static_bytes + i * kHashBytes);
  }
  return hashes;
}

}  // namespace colibri
