// BinaryWriter: writes model.bin or experts.bin front to back and can take up a former run.
//
// A file is made of units (a tensor, a record) whose places are known before. A unit's bytes are
// written first, its hashes in the table after them; a hash of 0 means "not written yet". When the
// writer is opened over a file with the same header and table, every unit whose bytes match its
// hashes is kept, all others are produced again: a run that was killed at any point continues, and
// the result is the same to the bit. SHA-256 of the file is taken on the way, so the file is
// passed over once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "io/container/checksum.hpp"
#include "io/container/container_format.hpp"
#include "io/container/file_handle.hpp"
#include "io/container/write_behind.hpp"
#include "io/status.hpp"

namespace colibri {

// Takes the bytes of one unit in order; errors of the disk are reported when the unit ends.
class UnitSink {
 public:
  virtual ~UnitSink() = default;
  virtual Status append(std::span<const std::byte> bytes) = 0;
  // Fills up with zeros to `offset` from the unit's start.
  virtual Status pad_to(std::uint64_t offset) = 0;
};

struct BinaryUnit {
  std::uint64_t offset = 0;  // in the file; units are written in ascending order
  std::uint64_t bytes = 0;
  std::uint64_t chunk_bytes = 0;  // one hash per chunk; the last may be short
  std::uint64_t first_hash = 0;   // index among the table's hashes
};

class BinaryWriter final : private UnitSink {
 public:
  // `header` has all its fields set; the hashes follow `static_table` in the table.
  static Result<BinaryWriter> open(const std::filesystem::path& path, const BinaryHeader& header,
                                   std::span<const std::byte> static_table);

  using Produce = std::function<Status(UnitSink&)>;
  // Returns the hashes of the unit. `produce` is not called when a former run's bytes are kept.
  Result<std::vector<std::uint64_t>> write_unit(const BinaryUnit& unit, const Produce& produce);
  // Completes the table, flushes the file to its device and returns its SHA-256.
  Result<Sha256Digest> finish();

  std::uint64_t position() const noexcept { return position_ + buffer_.size(); }
  std::uint64_t kept_units() const noexcept { return kept_units_; }

 private:
  BinaryWriter(FileHandle file, const BinaryHeader& header, std::uint64_t hashes_offset);

  Status append(std::span<const std::byte> bytes) override;
  Status pad_to(std::uint64_t offset) override;
  Status pad_to_file_offset(std::uint64_t offset);
  Status flush();
  Result<bool> keep_unit(const BinaryUnit& unit, std::span<const std::uint64_t> stored);
  void hash_chunks(std::span<const std::byte> bytes);
  void end_chunk();

  FileHandle file_;
  BinaryHeader header_;
  std::uint64_t hashes_offset_ = 0;
  std::uint64_t position_ = 0;      // bytes of the file that are written and in sha_
  std::vector<std::byte> buffer_;   // bytes after position_ that are not written yet
  std::vector<std::byte> scratch_;  // of re-reading
  Sha256Stream sha_;
  WriteBehind write_behind_;

  BinaryUnit unit_;
  bool in_unit_ = false;
  std::uint64_t chunk_filled_ = 0;
  std::unique_ptr<Xxh3Stream> chunk_hash_ = std::make_unique<Xxh3Stream>();
  std::vector<std::uint64_t> hashes_;
  std::uint64_t kept_units_ = 0;
};

}  // namespace colibri
