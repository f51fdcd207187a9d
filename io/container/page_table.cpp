// The page table at the end of experts.bin and of each part of the experts.
//
// Records lie at a fixed stride and expert e in file e % N, so the static part follows from the spec and
// the number of files; reading compares it byte for byte and has nothing left to trust.
#include <algorithm>

#include "io/container/container_files.hpp"
#include "io/container/container_format.hpp"
#include "io/container/little_endian.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kPageTableHeadBytes = 32;
constexpr std::uint64_t kPageEntryBytes = 32;
constexpr std::size_t kFileCountAt = 4;

Status damaged_page_table(const std::filesystem::path& file, std::uint64_t offset, const std::string& what) {
  return file_error(ErrorCode::corrupt, "damaged page table", file, offset,
                    ": " + what + "; convert the model again");
}

// Experts of one layer that lie in `file`: those with id % files == file.
std::uint32_t experts_in_file(const ModelSpec& spec, std::uint32_t files, std::uint32_t file) {
  return (spec.num_experts - file + files - 1) / files;
}

bool is_intact(std::span<const std::byte> table) noexcept {
  if (table.size() < kPageTableHeadBytes + kHashBytes) return false;
  const std::span<const std::byte> body = table.first(table.size() - kHashBytes);
  return xxh3_64(body) == load_little_endian<std::uint64_t>(body.data() + body.size());
}

Result<PageTableShape> make_shape(const ModelSpec& spec, const ExpertLayout& layout, std::uint32_t files,
                                  std::optional<std::uint32_t> part) {
  PageTableShape shape;
  shape.files = files;
  shape.part = part;
  shape.chunk_bytes = spec.expert_chunk_size;
  // The limits of a valid spec keep these two far below 2^64: 2^10 layers, 2^12 experts, 2^42-byte records.
  shape.records =
      std::uint64_t{spec.num_moe_layers()} * (part ? experts_in_file(spec, files, *part) : spec.num_experts);
  shape.chunks_per_record = (layout.payload_bytes + shape.chunk_bytes - 1) / shape.chunk_bytes;
  shape.static_bytes = kPageTableHeadBytes + shape.records * kPageEntryBytes;
  const auto hashes = checked_product(shape.records, shape.chunks_per_record, kHashBytes);
  const bool holds_records = files == 1 || part.has_value();
  const auto records = checked_mul(holds_records ? shape.records : 0, layout.record_bytes);
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

}  // namespace

Result<PageTableShape> page_table_shape(const ModelSpec& spec, const ExpertLayout& layout,
                                        std::uint32_t files) {
  return make_shape(spec, layout, files, std::nullopt);
}

Result<PageTableShape> part_table_shape(const ModelSpec& spec, const ExpertLayout& layout,
                                        std::uint32_t files, std::uint32_t part) {
  return make_shape(spec, layout, files, part);
}

RecordPlace record_place(const ModelSpec& spec, const ExpertLayout& layout, std::uint32_t files,
                         std::uint32_t moe_ordinal, std::uint32_t expert) noexcept {
  const std::uint32_t file = expert % files;
  const std::uint64_t index =
      std::uint64_t{moe_ordinal} * experts_in_file(spec, files, file) + expert / files;
  return {file, kPageBytes + index * layout.record_bytes};
}

std::uint32_t expert_file_count(std::span<const std::byte> table, const ModelSpec& spec) noexcept {
  if (!is_intact(table)) return 1;
  const auto files = load_little_endian<std::uint32_t>(table.data() + kFileCountAt);
  return files >= 1 && files <= std::min(kMaxExpertFiles, spec.num_experts) ? files : 1;
}

std::vector<std::byte> encode_page_table(const ModelSpec& spec, const ExpertLayout& layout,
                                         const PageTableShape& shape) {
  std::vector<std::byte> table;
  table.reserve(shape.static_bytes);
  append_little_endian(table, shape.chunk_bytes);
  append_little_endian(table, shape.files);
  append_little_endian(table, layout.payload_bytes);
  append_little_endian(table, layout.record_bytes);
  append_little_endian(table, shape.records);
  std::uint32_t ordinal = 0;
  for (std::uint32_t layer = 0; layer < spec.num_layers(); ++layer) {
    if (!spec.layers[layer].moe) continue;
    const std::uint32_t step = shape.part ? shape.files : 1;
    for (std::uint32_t expert = shape.part.value_or(0); expert < spec.num_experts; expert += step) {
      const RecordPlace place = record_place(spec, layout, shape.files, ordinal, expert);
      append_little_endian(table, place.file);
      append_little_endian(table, layer);
      append_little_endian(table, expert);
      append_little_endian(table, static_cast<std::uint32_t>(layout.format));
      append_little_endian(table, place.offset);
      append_little_endian(table, layout.record_bytes);
    }
    ++ordinal;
  }
  return table;
}

std::vector<std::byte> encode_whole_table(const ModelSpec& spec, const ExpertLayout& layout,
                                          const PageTableShape& shape,
                                          std::span<const std::uint64_t> chunk_hashes) {
  std::vector<std::byte> table = encode_page_table(spec, layout, shape);
  for (const std::uint64_t hash : chunk_hashes) append_little_endian(table, hash);
  append_little_endian(table, xxh3_64(table));
  return table;
}

Result<std::vector<std::uint64_t>> decode_page_table(std::span<const std::byte> table, const ModelSpec& spec,
                                                     const ExpertLayout& layout, const PageTableShape& shape,
                                                     const std::filesystem::path& file) {
  const std::uint64_t begin = shape.table_offset;
  if (table.size() != shape.table_bytes) {
    return damaged_page_table(
        file, begin,
        "expected " + std::to_string(shape.table_bytes) + " bytes, found " + std::to_string(table.size()));
  }
  const std::span<const std::byte> body = table.first(table.size() - kHashBytes);
  const auto stored = load_little_endian<std::uint64_t>(body.data() + body.size());
  if (const std::uint64_t computed = xxh3_64(body); computed != stored) {
    return damaged_page_table(
        file, begin + body.size(),
        "expected checksum " + std::to_string(stored) + ", found " + std::to_string(computed));
  }
  const std::vector<std::byte> expected = encode_page_table(spec, layout, shape);
  const auto difference = std::mismatch(expected.begin(), expected.end(), body.begin()).first;
  if (difference != expected.end()) {
    const auto at = static_cast<std::uint64_t>(difference - expected.begin());
    return damaged_page_table(file, begin + at,
                              "it differs from what model_spec.json demands, at byte " + std::to_string(at));
  }
  std::vector<std::uint64_t> hashes(shape.records * shape.chunks_per_record);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    hashes[i] = load_little_endian<std::uint64_t>(body.data() + shape.static_bytes + i * kHashBytes);
  }
  return hashes;
}

}  // namespace colibri
