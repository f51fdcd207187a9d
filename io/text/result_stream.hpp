// ResultStream: results on standard output, a pipe or a device. Nothing to resume, nothing
// to sync; a reader that has gone is an error like any other, not a signal.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "io/status.hpp"
#include "io/text/result_output.hpp"
#include "io/text/unique_descriptor.hpp"

namespace colibri {

class ResultStream final : public ResultOutput {
 public:
  // `name` is for errors.
  ResultStream(UniqueDescriptor descriptor, std::string name)
      : descriptor_(std::move(descriptor)), name_(std::move(name)) {}
  // A device or named pipe, whose reader is waited for; "-" or nothing is standard output.
  static Result<std::unique_ptr<ResultStream>> open(const std::string& path);

  Status append(std::uint64_t index, std::string_view line, bool failed) override;
  Status flush() override;

 private:
  Status write_out();

  UniqueDescriptor descriptor_;
  std::string name_;
  std::string unwritten_;
  Status failure_;
};

}  // namespace colibri
