#include "io/read/piece_read.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include "io/read/chunk_checksum.hpp"

namespace colibri {
namespace {

using std::chrono::microseconds;

// EAGAIN: 0.5 ms doubling to 64 ms, about a third of a second in all, then it is an error.
constexpr microseconds kFirstBackoff{500};
constexpr microseconds kLongestBackoff{64'000};
constexpr std::uint32_t kMaxBackoffs = 12;
// Reads in a row that may bring nothing (signals, less than a page) before giving up.
constexpr std::uint32_t kMaxStalls = 1000;

std::string hexadecimal(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

}  // namespace

void PieceRead::assign(ReadFiles& files, const ReadRequest& request, std::uint64_t begin,
                       std::uint64_t length, std::uint32_t file, std::uint32_t copy_stride) {
  *this = PieceRead();
  file_ = file;
  copy_stride_ = copy_stride;
  files_ = &files;
  request_ = &request;
  begin_ = begin;
  length_ = length;
}

RawRead PieceRead::next_read() {
  issued_direct_ = files_->is_direct(file_);
  const std::uint64_t position = begin_ + done_;
  return {file_,
          request_->offset + position,
          request_->destination + position,
          length_ - done_,
          issued_direct_,
          std::exchange(delay_, microseconds{0})};
}

PieceRead::Step PieceRead::on_result(const RawResult& result) {
  return result.error != 0 ? on_error(result.error) : on_bytes(result.bytes);
}

PieceRead::Step PieceRead::on_bytes(std::uint64_t bytes) {
  backoffs_ = 0;
  std::uint64_t taken = std::min(bytes, length_ - done_);
  // Go on from a page border: O_DIRECT accepts nothing else.
  if (taken < length_ - done_) taken -= taken % kReadAlignment;
  files_->drop_cache(file_, request_->offset + begin_ + done_, taken);
  done_ += taken;
  if (done_ == length_) return verify();
  if (taken != 0) {
    stalls_ = 0;
    return Step::again;
  }
  const std::uint64_t expected = request_->offset + begin_ + length_;
  const auto found = files_->size(file_);
  if (found && *found < expected) {
    return fail(ErrorCode::corrupt,
                "file ends inside an expert record: expected at least " + std::to_string(expected) +
                    " bytes, found " + std::to_string(*found),
                request_->offset + begin_ + done_, "copy or convert the model again");
  }
  if (++stalls_ > kMaxStalls) {
    return fail(ErrorCode::io, "read makes no progress", request_->offset + begin_ + done_,
                "check the drive and the kernel log (dmesg)");
  }
  return retry(microseconds{0});
}

PieceRead::Step PieceRead::on_error(int error) {
  const std::uint64_t offset = request_->offset + begin_ + done_;
  switch (error) {
    case EINTR:
      if (++stalls_ <= kMaxStalls) return retry(microseconds{0});
      break;
    case EAGAIN:
    case ENOMEM:  // the kernel had no request or page for it at that moment
      if (backoffs_ < kMaxBackoffs) {
        const microseconds delay =
            std::min(kFirstBackoff * (1u << std::min(backoffs_, 16u)), kLongestBackoff);
        ++backoffs_;
        return retry(delay);
      }
      break;
    case EINVAL:
    case EOPNOTSUPP:
      // The request itself was checked, so this is O_DIRECT being refused.
      if (issued_direct_ && files_->fall_back_to_buffered(file_, error)) return Step::again;
      break;
    default:
      if (!std::exchange(error_retried_, true)) {
        turn_to_next_copy();
        return retry(microseconds{0});
      }
      break;
  }
  return fail(ErrorCode::io, "read failed: " + std::generic_category().message(error), offset,
              "check the drive and the kernel log (dmesg)");
}

PieceRead::Step PieceRead::verify() {
  if (request_->chunk_hashes.empty()) return Step::done;
  const std::uint64_t end = std::min(begin_ + length_, request_->payload_length);
  for (std::uint64_t chunk = begin_; chunk < end; chunk += request_->chunk_bytes) {
    const std::uint64_t size = std::min(request_->chunk_bytes, end - chunk);
    const std::uint64_t expected = request_->chunk_hashes[chunk / request_->chunk_bytes];
    const std::uint64_t found = chunk_checksum({request_->destination + chunk, size});
    if (found == expected) continue;
    if (std::exchange(checksum_retried_, true)) {
      return fail(
          ErrorCode::corrupt,
          "checksum of a chunk is wrong: expected " + hexadecimal(expected) + ", found " + hexadecimal(found),
          request_->offset + chunk, "run colibri verify, then copy or convert the model again");
    }
    done_ = 0;
    turn_to_next_copy();
    return retry(microseconds{0});
  }
  return Step::done;
}

PieceRead::Step PieceRead::retry(microseconds delay) {
  delay_ = delay;
  ++retries_;
  retried_bytes_ += length_ - done_;
  return Step::again;
}

PieceRead::Step PieceRead::fail(ErrorCode code, std::string_view what, std::uint64_t offset,
                                std::string_view remedy) {
  std::string message(what);
  message += "; file " + files_->path(file_) + ", offset " + std::to_string(offset) +
             ", in the record at offset " + std::to_string(request_->offset) + "; " + std::string(remedy);
  failure_ = Status(code, std::move(message)).in_file(files_->path(file_), offset);
  return Step::failed;
}

}  // namespace colibri
