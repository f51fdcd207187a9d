// Hidden states in safetensors files: what `colibri run` reads and writes.
//
// Input: a tensor `moe_input.N` [rows, hidden] for each MoE layer N that is to be computed; f32, f16 or
// bf16. Output: `moe_output.N`, of the same shape, f32. Rows pass step by step: neither file is ever in
// memory as a whole.
#pragma once

#include <atomic>
#include <colibri/services.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/safetensors.hpp"
#include "io/checkpoint/safetensors_output.hpp"

namespace colibri::cli {

// The tensors of an input, in ascending order of their layers; HiddenRows::batch is the index.
class HiddenFileSource final : public HiddenSource {
 public:
  // Finds the tensors; other names than moe_input.N are passed over.
  static Result<std::unique_ptr<HiddenFileSource>> open(const std::string& path);
  // Whether every tensor suits the model; the error names the first that does not.
  Status check(const ModelSpec& spec) const;

  Result<Pull> pull(HiddenRows& rows, std::span<float> residual) override;
  void on_ready(std::function<void()>) override {}  // a file never makes anyone wait

  // moe_output.N of the shapes of the inputs.
  std::vector<OutputTensor> outputs() const;
  std::uint64_t rows() const noexcept;  // of all tensors
  std::size_t tensors() const noexcept { return inputs_.size(); }

 private:
  struct Input {
    const TensorInfo* tensor;
    std::uint32_t layer;
  };
  explicit HiddenFileSource(SafetensorsFile file) : file_(std::move(file)) {}

  SafetensorsFile file_;
  std::vector<Input> inputs_;
  std::size_t next_input_ = 0;
  std::uint32_t next_row_ = 0;
};

// Writes results as they come. Rows without one are NaN in the file, and are told of by failures().
class HiddenFileSink final : public HiddenSink {
 public:
  explicit HiddenFileSink(SafetensorsOutput& output) : output_(output) {}
  Status rows(const HiddenRows& rows, const HiddenResults& results) override;

  std::uint64_t written() const noexcept { return written_.load(std::memory_order_relaxed); }  // any thread
  std::uint64_t failed() const noexcept { return failed_; }
  // Why rows failed, the first kMaxFailures of them. After the job.
  const std::vector<Status>& failures() const noexcept { return failures_; }
  static constexpr std::size_t kMaxFailures = 20;

 private:
  SafetensorsOutput& output_;
  std::vector<float> row_;  // NaN
  std::atomic<std::uint64_t> written_{0};
  std::uint64_t failed_ = 0;
  std::vector<Status> failures_;
};

}  // namespace colibri::cli
