// ResultOutput: where result lines go. A file with a journal (ResultFile), or a stream such
// as standard output (ResultStream).
#pragma once

#include <cstdint>
#include <string_view>

#include "io/status.hpp"

namespace colibri {

// Used by one thread at a time. After a failure every later call gives that failure again.
class ResultOutput {
 public:
  virtual ~ResultOutput() = default;
  // `line` with its newline; `index` is that of the request, `failed` whether it is an error result.
  virtual Status append(std::uint64_t index, std::string_view line, bool failed) = 0;
  // What was appended survives a crash (a file) or is handed on (a stream).
  virtual Status flush() = 0;
};

}  // namespace colibri
