// PieceRead: one piece of a record on its way through a lane, and all that can go wrong.
//
// The one place that knows what to do after a read of the operating system: EINTR and
// short reads continue, EAGAIN backs off, an I/O error and a bad checksum are retried
// once, O_DIRECT refused falls back to buffered, the end of the file is corruption.
// Both backends and the fault tests go through it. Internal to io/read.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "io/read/raw_lanes.hpp"
#include "io/read/read_backend.hpp"
#include "io/read/read_files.hpp"
#include "io/status.hpp"

namespace colibri {

class PieceRead {
 public:
  enum class Step : std::uint8_t {
    again,   // issue next_read()
    done,    // all bytes are there and their checksums match
    failed,  // see failure()
  };

  // The bytes [begin, begin + length) of `request`, which must stay where it is, from `file`. With
  // hashes, begin is a multiple of the chunk size and the piece ends with a chunk or the record.
  // Files a multiple of `copy_stride` apart are copies: what fails in one is read again in another.
  void assign(ReadFiles& files, const ReadRequest& request, std::uint64_t begin, std::uint64_t length,
              std::uint32_t file, std::uint32_t copy_stride);

  // What to hand to the lane next.
  RawRead next_read();

  // What follows from the result of the last next_read(). Hashes the bytes when they are
  // complete, so call it without locks.
  Step on_result(const RawResult& result);

  const Status& failure() const noexcept { return failure_; }
  std::uint64_t length() const noexcept { return length_; }
  // Where the next read, or the last one, is from.
  std::uint32_t file() const noexcept { return file_; }
  std::uint32_t retries() const noexcept { return retries_; }
  std::uint64_t retried_bytes() const noexcept { return retried_bytes_; }

 private:
  Step on_bytes(std::uint64_t bytes);
  Step on_error(int error);
  Step verify();
  void turn_to_next_copy() noexcept { file_ = (file_ + copy_stride_) % files_->count(); }
  Step retry(std::chrono::microseconds delay);
  Step fail(ErrorCode code, std::string_view what, std::uint64_t offset, std::string_view remedy);

  ReadFiles* files_ = nullptr;
  const ReadRequest* request_ = nullptr;
  std::uint32_t file_ = 0;
  std::uint32_t copy_stride_ = 0;
  std::uint64_t begin_ = 0;  // within the record
  std::uint64_t length_ = 0;
  std::uint64_t done_ = 0;  // bytes of the piece that have arrived
  std::chrono::microseconds delay_{0};
  std::uint32_t stalls_ = 0;    // reads in a row that brought nothing
  std::uint32_t backoffs_ = 0;  // EAGAIN in a row
  bool issued_direct_ = false;
  bool error_retried_ = false;
  bool checksum_retried_ = false;
  std::uint32_t retries_ = 0;
  std::uint64_t retried_bytes_ = 0;
  Status failure_;
};

}  // namespace colibri
