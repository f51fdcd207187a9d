// JsonlReader: the lines of a JSONL input, one at a time, whatever wrote them.
//
// LF or CRLF, a byte order mark, blank lines and a missing final newline are fine; blank
// lines are skipped but counted, so that a line's index is where an editor shows it. Memory
// stays at one buffer however long the input is; a line beyond the limit is passed over
// without being held, and reported; one beyond kMaxPassedOverBytes is an error. A regular file never makes
// next() wait; a pipe or terminal does so with Event::wait instead of blocking the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/status.hpp"
#include "io/text/unique_descriptor.hpp"

namespace colibri {

inline constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;
// Without a line ending for this long an input has no lines: a device of zeros would never end.
inline constexpr std::uint64_t kMaxPassedOverBytes = std::uint64_t{1} << 30;

struct JsonlLine {
  std::string_view text;     // without line ending; valid until the next call of next()
  std::uint64_t index = 0;   // line number from 0, blank lines counted
  std::uint64_t offset = 0;  // of its first byte in the input
  std::uint64_t bytes = 0;   // with its line ending
  bool terminated = true;    // false: the input ends without a newline
  bool too_long = false;     // longer than the limit; text is empty
};

class JsonlReader {
 public:
  enum class Event : std::uint8_t { line, wait, end };

  static Result<JsonlReader> open(const std::string& path, std::size_t max_line_bytes = kMaxLineBytes);
  // An open descriptor (standard input); `name` is for errors. Reads from its present position.
  static Result<JsonlReader> from_descriptor(UniqueDescriptor descriptor, std::string name,
                                             std::size_t max_line_bytes = kMaxLineBytes);

  // line: `line` is set. wait: nothing has arrived yet; poll descriptor() for input.
  Result<Event> next(JsonlLine& line);

  bool is_regular_file() const noexcept { return regular_; }
  int descriptor() const noexcept { return descriptor_.get(); }
  const std::string& name() const noexcept { return name_; }
  std::uint64_t bytes_consumed() const noexcept { return offset_; }  // of lines given so far, and blank ones
  std::uint64_t lines_consumed() const noexcept { return index_; }
  std::uint64_t bytes_total() const noexcept { return bytes_total_; }  // 0: not known

 private:
  JsonlReader(UniqueDescriptor descriptor, std::string name, std::size_t max_line_bytes);
  enum class Fill : std::uint8_t { more, wait, end };
  Result<Fill> fill();
  void make_room();
  Status strip_byte_order_mark();
  void take(std::size_t bytes, bool terminated, JsonlLine& line);

  UniqueDescriptor descriptor_;
  std::string name_;
  std::size_t max_line_bytes_;
  bool regular_ = false;
  std::uint64_t bytes_total_ = 0;
  std::string buffer_;  // [begin_, end_) holds what was read and not yet given
  std::size_t begin_ = 0;
  std::size_t searched_ = 0;  // no newline in [begin_, searched_)
  std::size_t end_ = 0;
  std::uint64_t skipped_ = 0;  // bytes of a too long line already dropped
  std::uint64_t offset_ = 0;
  std::uint64_t index_ = 0;
  bool at_start_ = true;
  bool ended_ = false;
};

}  // namespace colibri
