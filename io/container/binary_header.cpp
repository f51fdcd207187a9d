// The 4 KiB header of all .bin files.
#include <algorithm>
#include <cstring>

#include "io/container/container_files.hpp"
#include "io/container/container_format.hpp"
#include "io/container/little_endian.hpp"

namespace colibri {
namespace {

constexpr std::array<char, 8> kMagic = {'C', 'O', 'L', 'I', 'B', 'R', 'I', '\0'};
constexpr std::uint32_t kEndianMark = 0x01020304;

constexpr std::size_t kMagicAt = 0;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kEndianAt = 12;
constexpr std::size_t kKindAt = 16;
constexpr std::size_t kPartAt = 20;
constexpr std::size_t kTableOffsetAt = 56;
constexpr std::size_t kTableBytesAt = 64;
constexpr std::size_t kFileLengthAt = 72;
constexpr std::size_t kHeaderHashAt = 80;

// Hash of the header with the hash field itself as zero.
std::uint64_t header_hash(std::span<const std::byte> header) {
  std::array<std::byte, kPageBytes> copy;
  std::memcpy(copy.data(), header.data(), copy.size());
  std::memset(copy.data() + kHeaderHashAt, 0, sizeof(std::uint64_t));
  return xxh3_64(copy);
}

// What the eight bytes of a magic look like in an error: printable characters as they are.
std::string printable(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    const auto value = std::to_integer<unsigned>(byte);
    if (value >= 0x20 && value < 0x7f) {
      text += static_cast<char>(value);
    } else {
      text += {'\\', 'x', kDigits[value >> 4], kDigits[value & 15]};
    }
  }
  return text;
}

Status mismatch(ErrorCode code, const std::string& what, const std::filesystem::path& file, std::size_t at,
                const std::string& expected, const std::string& found, const std::string& remedy) {
  return file_error(code, what, file, at, ", expected " + expected + ", found " + found + "; " + remedy);
}

constexpr char kConvertAgain[] = "convert the model again";

}  // namespace

std::array<std::byte, kPageBytes> encode_header(const BinaryHeader& header) {
  std::array<std::byte, kPageBytes> bytes{};
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  store_little_endian(kContainerVersion, bytes.data() + kVersionAt);
  store_little_endian(kEndianMark, bytes.data() + kEndianAt);
  store_little_endian(static_cast<std::uint32_t>(header.kind), bytes.data() + kKindAt);
  store_little_endian(header.part, bytes.data() + kPartAt);
  std::memcpy(bytes.data() + kSpecDigestAt, header.spec_digest.data(), header.spec_digest.size());
  store_little_endian(header.table_offset, bytes.data() + kTableOffsetAt);
  store_little_endian(header.table_bytes, bytes.data() + kTableBytesAt);
  store_little_endian(header.file_length, bytes.data() + kFileLengthAt);
  store_little_endian(header_hash(bytes), bytes.data() + kHeaderHashAt);
  return bytes;
}

Result<BinaryHeader> decode_header(std::span<const std::byte> bytes, BinaryKind kind,
                                   std::uint64_t actual_length, const std::filesystem::path& file) {
  // Magic, version and length come first, each with its own sentence; the header's hash then covers the rest.
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return mismatch(ErrorCode::corrupt, "wrong magic, this is not a colibri file", file, kMagicAt,
                    "COLIBRI\\x00", printable(bytes.first(kMagic.size())), kConvertAgain);
  }
  const auto version = load_little_endian<std::uint32_t>(bytes.data() + kVersionAt);
  const auto endian = load_little_endian<std::uint32_t>(bytes.data() + kEndianAt);
  if (endian != kEndianMark) {
    return mismatch(ErrorCode::corrupt, "wrong byte order", file, kEndianAt, std::to_string(kEndianMark),
                    std::to_string(endian), kConvertAgain);
  }
  if (version != kContainerVersion) {
    return mismatch(ErrorCode::unsupported, "unknown container version", file, kVersionAt,
                    std::to_string(kContainerVersion), std::to_string(version),
                    "use the version of colibri that wrote it, or convert again");
  }
  const auto stored_kind = load_little_endian<std::uint32_t>(bytes.data() + kKindAt);
  if (stored_kind != static_cast<std::uint32_t>(kind)) {
    return mismatch(
        ErrorCode::corrupt, "wrong kind of colibri file", file, kKindAt,
        std::to_string(static_cast<std::uint32_t>(kind)), std::to_string(stored_kind),
        "model.bin is kind 1, experts.bin kind 2, a part of the experts kind 3; were they swapped?");
  }
  BinaryHeader header;
  header.kind = kind;
  header.part = load_little_endian<std::uint32_t>(bytes.data() + kPartAt);
  std::memcpy(header.spec_digest.data(), bytes.data() + kSpecDigestAt, header.spec_digest.size());
  header.table_offset = load_little_endian<std::uint64_t>(bytes.data() + kTableOffsetAt);
  header.table_bytes = load_little_endian<std::uint64_t>(bytes.data() + kTableBytesAt);
  header.file_length = load_little_endian<std::uint64_t>(bytes.data() + kFileLengthAt);
  if (header.file_length != actual_length) {
    return mismatch(ErrorCode::corrupt, "wrong file length, the file is truncated or damaged", file,
                    kFileLengthAt, std::to_string(header.file_length) + " bytes",
                    std::to_string(actual_length), "copy or convert it again");
  }
  const std::optional<std::uint64_t> table_end = checked_add(header.table_offset, header.table_bytes);
  if (!table_end || *table_end != header.file_length || header.table_offset < kPageBytes) {
    return mismatch(ErrorCode::corrupt, "the table lies outside the file", file, kTableOffsetAt,
                    "an end at " + std::to_string(header.file_length),
                    std::to_string(header.table_bytes) + " bytes at " + std::to_string(header.table_offset),
                    kConvertAgain);
  }
  const auto stored_hash = load_little_endian<std::uint64_t>(bytes.data() + kHeaderHashAt);
  if (const std::uint64_t computed = header_hash(bytes); computed != stored_hash) {
    return mismatch(ErrorCode::corrupt, "wrong checksum of the header", file, kHeaderHashAt,
                    std::to_string(stored_hash), std::to_string(computed), "copy or convert it again");
  }
  return header;
}

}  // namespace colibri
