#include "io/text/jsonl_reader.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace colibri {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 10;
// A buffer that one long line made larger than this is given back after it.
constexpr std::size_t kKeptBytes = std::size_t{4} << 20;

constexpr std::size_t kMarkBytes = 3;  // of the UTF-8 byte order mark

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\v\f") == std::string_view::npos; }

}  // namespace

JsonlReader::JsonlReader(UniqueDescriptor descriptor, std::string name, std::size_t max_line_bytes)
    : descriptor_(std::move(descriptor)), name_(std::move(name)), max_line_bytes_(max_line_bytes) {}

Result<JsonlReader> JsonlReader::open(const std::string& path, std::size_t max_line_bytes) {
  auto descriptor = open_file(path, O_RDONLY);
  if (!descriptor) return std::move(descriptor).status();
  return from_descriptor(std::move(descriptor).value(), path, max_line_bytes);
}

Result<JsonlReader> JsonlReader::from_descriptor(UniqueDescriptor descriptor, std::string name,
                                                 std::size_t max_line_bytes) {
  struct stat info {};
  if (::fstat(descriptor.get(), &info) != 0) return system_error("examine", name, errno);
  if (S_ISDIR(info.st_mode)) {
    return Status(ErrorCode::invalid_input,
                  "this is a folder, not a file of lines: '" + name + "'; name a file");
  }
  JsonlReader reader(std::move(descriptor), std::move(name), max_line_bytes);
  reader.regular_ = S_ISREG(info.st_mode);
  if (reader.regular_) reader.bytes_total_ = static_cast<std::uint64_t>(info.st_size);
  return reader;
}

Result<JsonlReader::Event> JsonlReader::next(JsonlLine& line) {
  for (;;) {
    if (!at_start_ || ended_ || end_ - begin_ >= kMarkBytes) {
      if (at_start_) COLIBRI_RETURN_IF_ERROR(strip_byte_order_mark());
      const void* found =
          end_ > searched_ ? std::memchr(&buffer_[searched_], '\n', end_ - searched_) : nullptr;
      if (found != nullptr || (ended_ && (begin_ < end_ || skipped_ > 0))) {
        const std::size_t line_end =
            found != nullptr ? static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data()) + 1
                             : end_;
        take(line_end - begin_, found != nullptr, line);
        if (line.too_long || !is_blank(line.text)) return Event::line;
        continue;
      }
      if (ended_) return Event::end;
      searched_ = end_;
      if (skipped_ > 0 || end_ - begin_ > max_line_bytes_ + 2) {  // too long even if CRLF follows
        skipped_ += end_ - begin_;
        begin_ = searched_ = end_ = 0;
        if (skipped_ > kMaxPassedOverBytes) {
          return Status(ErrorCode::invalid_input, "this is no file of lines, none ends within 1 GiB: '" +
                                                      name_ + "', offset " + std::to_string(offset_) +
                                                      "; name a JSONL file");
        }
      }
    }
    COLIBRI_ASSIGN_OR_RETURN(const Fill filled, fill());
    if (filled == Fill::wait) return Event::wait;
  }
}

void JsonlReader::take(std::size_t bytes, bool terminated, JsonlLine& line) {
  std::string_view text(buffer_.data() + begin_, bytes);
  if (terminated) text.remove_suffix(1);
  if (terminated && text.ends_with('\r')) text.remove_suffix(1);
  line.index = index_++;
  line.offset = offset_;
  line.bytes = skipped_ + bytes;
  line.terminated = terminated;
  line.too_long = skipped_ > 0 || text.size() > max_line_bytes_;
  line.text = line.too_long ? std::string_view() : text;
  offset_ += line.bytes;
  skipped_ = 0;
  begin_ += bytes;
  searched_ = begin_;
}

Status JsonlReader::strip_byte_order_mark() {
  at_start_ = false;
  const std::string_view start(buffer_.data() + begin_, std::min(end_ - begin_, kMarkBytes));
  if (start.starts_with("\xFF\xFE") || start.starts_with("\xFE\xFF")) {
    return {ErrorCode::unsupported, "the file is UTF-16, not UTF-8: '" + name_ + "'; save it as UTF-8"};
  }
  if (start == "\xEF\xBB\xBF") {
    begin_ += kMarkBytes;
    offset_ += kMarkBytes;
    searched_ = begin_;
  }
  return {};
}

void JsonlReader::make_room() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    searched_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() > kKeptBytes && end_ < kReadBytes) {
    std::string smaller(2 * kReadBytes, '\0');
    std::memcpy(smaller.data(), buffer_.data(), end_);
    buffer_ = std::move(smaller);
  }
  if (buffer_.size() - end_ < kReadBytes) buffer_.resize(std::max(2 * buffer_.size(), end_ + kReadBytes));
}

Result<JsonlReader::Fill> JsonlReader::fill() {
  if (!regular_) {
    pollfd ready{descriptor_.get(), POLLIN, 0};
    const int count = ::poll(&ready, 1, 0);
    if (count == 0 || (count < 0 && errno == EINTR)) return Fill::wait;
  }
  make_room();
  for (;;) {
    const ssize_t count = ::read(descriptor_.get(), buffer_.data() + end_, kReadBytes);
    if (count > 0) {
      end_ += static_cast<std::size_t>(count);
      return Fill::more;
    }
    if (count == 0) {
      ended_ = true;
      return Fill::end;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Fill::wait;
    if (errno != EINTR) return system_error("read", name_, errno);
  }
}

}  // namespace colibri
