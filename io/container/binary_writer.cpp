// Front-to-back writing with hashes on the way.
#include "io/container/binary_writer.hpp"

#include <algorithm>

#include "io/container/little_endian.hpp"

namespace colibri {
namespace {

constexpr std::size_t kWritePiece = 4U << 20;

// True when the file starts like the one that is about to be written.
Result<bool> is_continuation(const FileHandle& file, std::span<const std::byte> header,
                             const BinaryHeader& fields, std::span<const std::byte> static_table) {
  if (file.size() != fields.file_length) return false;
  std::vector<std::byte> stored(header.size());
  COLIBRI_RETURN_IF_ERROR(file.read_at(0, stored));
  if (!std::equal(stored.begin(), stored.end(), header.begin())) return false;
  stored.resize(static_table.size());
  COLIBRI_RETURN_IF_ERROR(file.read_at(fields.table_offset, stored));
  return std::equal(stored.begin(), stored.end(), static_table.begin());
}

}  // namespace

BinaryWriter::BinaryWriter(FileHandle file, const BinaryHeader& header, std::uint64_t hashes_offset)
    : file_(std::move(file)), header_(header), hashes_offset_(hashes_offset) {
  buffer_.reserve(kWritePiece);
}

Result<BinaryWriter> BinaryWriter::open(const std::filesystem::path& path, const BinaryHeader& header,
                                        std::span<const std::byte> static_table) {
  COLIBRI_ASSIGN_OR_RETURN(FileHandle file, FileHandle::open_for_writing(path));
  const std::array<std::byte, kPageBytes> page = encode_header(header);
  COLIBRI_ASSIGN_OR_RETURN(const bool continues, is_continuation(file, page, header, static_table));
  if (!continues) {
    // Emptied first: every hash then reads as 0. The header goes last, so that a file that was killed in
    // here is no continuation.
    COLIBRI_RETURN_IF_ERROR(file.resize(0));
    COLIBRI_RETURN_IF_ERROR(file.resize(header.file_length));
    COLIBRI_RETURN_IF_ERROR(file.write_at(header.table_offset, static_table));
    COLIBRI_RETURN_IF_ERROR(file.write_at(0, page));
  }
  BinaryWriter writer(std::move(file), header, header.table_offset + static_table.size());
  writer.sha_.update(page);
  writer.position_ = page.size();
  return writer;
}

Result<std::vector<std::uint64_t>> BinaryWriter::write_unit(const BinaryUnit& unit, const Produce& produce) {
  COLIBRI_RETURN_IF_ERROR(pad_to_file_offset(unit.offset));
  const std::uint64_t chunks = (unit.bytes + unit.chunk_bytes - 1) / unit.chunk_bytes;
  std::vector<std::byte> raw(chunks * kHashBytes);
  const std::uint64_t raw_offset = hashes_offset_ + unit.first_hash * kHashBytes;
  COLIBRI_RETURN_IF_ERROR(file_.read_at(raw_offset, raw));
  std::vector<std::uint64_t> stored(chunks);
  for (std::size_t i = 0; i < chunks; ++i) {
    stored[i] = load_little_endian<std::uint64_t>(raw.data() + i * kHashBytes);
  }
  COLIBRI_ASSIGN_OR_RETURN(const bool kept, keep_unit(unit, stored));
  if (kept) {
    ++kept_units_;
    return stored;
  }

  unit_ = unit;
  in_unit_ = true;
  chunk_filled_ = 0;
  hashes_.clear();
  chunk_hash_->reset();
  const Status produced = produce(*this);
  if (chunk_filled_ > 0) end_chunk();
  in_unit_ = false;
  COLIBRI_RETURN_IF_ERROR(produced);
  if (position() != unit.offset + unit.bytes) {
    return Status(ErrorCode::internal, "a unit of " + file_.path().string() +
                                           " has the wrong size, expected " + std::to_string(unit.bytes) +
                                           " bytes, found " + std::to_string(position() - unit.offset));
  }
  COLIBRI_RETURN_IF_ERROR(flush());
  for (std::size_t i = 0; i < chunks; ++i) store_little_endian(hashes_[i], raw.data() + i * kHashBytes);
  COLIBRI_RETURN_IF_ERROR(file_.write_at(raw_offset, raw));
  return hashes_;
}

Result<bool> BinaryWriter::keep_unit(const BinaryUnit& unit, std::span<const std::uint64_t> stored) {
  if (std::find(stored.begin(), stored.end(), 0) != stored.end()) return false;
  COLIBRI_RETURN_IF_ERROR(flush());
  const Sha256Stream before = sha_;
  scratch_.resize(std::min<std::uint64_t>(kWritePiece, unit.bytes));
  std::uint64_t done = 0;
  for (const std::uint64_t expected : stored) {
    const std::uint64_t chunk_end = std::min(unit.bytes, done + unit.chunk_bytes);
    chunk_hash_->reset();
    while (done < chunk_end) {
      const auto piece =
          std::span(scratch_).first(std::min<std::uint64_t>(scratch_.size(), chunk_end - done));
      COLIBRI_RETURN_IF_ERROR(file_.read_at(unit.offset + done, piece));
      chunk_hash_->update(piece);
      sha_.update(piece);
      done += piece.size();
    }
    if (chunk_hash_->digest() != expected) {
      sha_ = before;
      return false;
    }
  }
  position_ += unit.bytes;
  return true;
}

Status BinaryWriter::append(std::span<const std::byte> bytes) {
  if (in_unit_) hash_chunks(bytes);
  while (!bytes.empty()) {
    const std::size_t room = std::min(bytes.size(), kWritePiece - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(room));
    bytes = bytes.subspan(room);
    if (buffer_.size() == kWritePiece) COLIBRI_RETURN_IF_ERROR(flush());
  }
  return Status::ok();
}

Status BinaryWriter::pad_to(std::uint64_t offset) { return pad_to_file_offset(unit_.offset + offset); }

Status BinaryWriter::pad_to_file_offset(std::uint64_t offset) {
  constexpr std::array<std::byte, kPageBytes> kZeros{};
  while (position() < offset) {
    const std::uint64_t piece = std::min<std::uint64_t>(kZeros.size(), offset - position());
    COLIBRI_RETURN_IF_ERROR(append(std::span(kZeros).first(piece)));
  }
  return Status::ok();
}

Status BinaryWriter::flush() {
  COLIBRI_RETURN_IF_ERROR(file_.write_at(position_, buffer_));
  sha_.update(buffer_);
  position_ += buffer_.size();
  buffer_.clear();
  write_behind_.advance(file_, position_);
  return Status::ok();
}

void BinaryWriter::hash_chunks(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t piece = std::min<std::uint64_t>(bytes.size(), unit_.chunk_bytes - chunk_filled_);
    chunk_hash_->update(bytes.first(piece));
    chunk_filled_ += piece;
    bytes = bytes.subspan(piece);
    if (chunk_filled_ == unit_.chunk_bytes) end_chunk();
  }
}

void BinaryWriter::end_chunk() {
  hashes_.push_back(chunk_hash_->digest());
  chunk_hash_->reset();
  chunk_filled_ = 0;
}

Result<Sha256Digest> BinaryWriter::finish() {
  COLIBRI_RETURN_IF_ERROR(pad_to_file_offset(header_.table_offset));
  COLIBRI_RETURN_IF_ERROR(flush());
  const std::uint64_t body_end = header_.file_length - kHashBytes;
  chunk_hash_->reset();
  scratch_.resize(kWritePiece);
  while (position_ < body_end) {
    const auto piece =
        std::span(scratch_).first(std::min<std::uint64_t>(scratch_.size(), body_end - position_));
    COLIBRI_RETURN_IF_ERROR(file_.read_at(position_, piece));
    chunk_hash_->update(piece);
    sha_.update(piece);
    position_ += piece.size();
  }
  std::array<std::byte, kHashBytes> trailer;
  store_little_endian(chunk_hash_->digest(), trailer.data());
  COLIBRI_RETURN_IF_ERROR(file_.write_at(body_end, trailer));
  sha_.update(trailer);
  COLIBRI_RETURN_IF_ERROR(file_.sync());
  return sha_.digest();
}

}  // namespace colibri
