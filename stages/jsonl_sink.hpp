// JsonlSink writes the results of a job as lines to a ResultOutput and counts them.
#pragma once

#include <atomic>
#include <colibri/services.hpp>
#include <cstdint>
#include <string>

#include "io/text/result_output.hpp"
#include "io/text/result_writer.hpp"

namespace colibri {

class JsonlSink final : public ResultSink {
 public:
  // `output` must outlive the sink; finishing it is left to who made it.
  JsonlSink(ResultOutput& output, ResultWriter writer) : output_(output), writer_(std::move(writer)) {}

  Status result(RequestResult&& result) override;
  Status flush() override { return output_.flush(); }

  // Results of this run, any thread.
  std::uint64_t succeeded() const noexcept { return succeeded_.load(std::memory_order_relaxed); }
  std::uint64_t failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

 private:
  ResultOutput& output_;
  ResultWriter writer_;
  std::string line_;
  std::atomic<std::uint64_t> succeeded_{0};
  std::atomic<std::uint64_t> failed_{0};
};

}  // namespace colibri
