// Hidden states of a test as the source and sink of a job over the experts alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <colibri/engine.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace colibri::testing {

struct HiddenBatch {
  std::uint32_t layer = 0;
  std::vector<float> values;  // [rows, hidden]
};

// Gives the batches one after the other, in steps as large as they may be.
class BatchSource : public HiddenSource {
 public:
  BatchSource(std::vector<HiddenBatch> batches, std::size_t hidden)
      : batches_(std::move(batches)), hidden_(hidden) {}

  Result<Pull> pull(HiddenRows& rows, std::span<float> residual) override {
    while (next_ < batches_.size() && first_ * hidden_ == batches_[next_].values.size()) {
      ++next_;
      first_ = 0;
    }
    if (next_ == batches_.size()) return Pull::end;
    const HiddenBatch& batch = batches_[next_];
    const std::size_t left = batch.values.size() / hidden_ - first_;
    rows.name = "batch " + std::to_string(next_);
    rows.batch = next_;
    rows.layer = batch.layer;
    rows.first_row = static_cast<std::uint32_t>(first_);
    rows.rows = static_cast<std::uint32_t>(std::min(left, residual.size() / hidden_));
    std::copy_n(batch.values.begin() + static_cast<std::ptrdiff_t>(first_ * hidden_), rows.rows * hidden_,
                residual.begin());
    first_ += rows.rows;
    ++pulls;
    return Pull::rows;
  }
  void on_ready(std::function<void()>) override {}

  std::size_t pulls = 0;

 private:
  std::vector<HiddenBatch> batches_;
  std::size_t hidden_;
  std::size_t next_ = 0;
  std::size_t first_ = 0;
};

// Keeps the rows of each batch, and which of them have no result. A row that comes twice fails the test.
class BatchSink : public HiddenSink {
 public:
  explicit BatchSink(std::span<const HiddenBatch> batches) {
    for (const HiddenBatch& batch : batches) values.emplace_back(batch.values.size(), kUnset);
  }

  Status rows(const HiddenRows& rows, const HiddenResults& results) override {
    const std::span<const float> output = results.output;
    const std::span<const Status> status = results.status;
    const std::size_t hidden = output.size() / rows.rows;
    EXPECT_EQ(status.size(), rows.rows);
    for (std::size_t i = 0; i < output.size(); ++i) {
      float& value = values.at(rows.batch).at(rows.first_row * hidden + i);
      EXPECT_EQ(value, kUnset) << "a row came twice";
      value = output[i];
    }
    for (std::uint32_t i = 0; i < rows.rows; ++i) {
      if (!status[i].is_ok()) failed.push_back({rows.batch, rows.first_row + i, status[i]});
    }
    taken += rows.rows;
    return {};
  }

  struct Failure {
    std::uint64_t batch;
    std::uint32_t row;
    Status status;
  };
  static constexpr float kUnset = -12345.5F;
  std::vector<std::vector<float>> values;  // [batches][rows, hidden]
  std::vector<Failure> failed;
  std::uint64_t taken = 0;
};

struct BlockRun {
  std::vector<std::vector<float>> outputs;  // [batches][rows, hidden]
  std::vector<BatchSink::Failure> failed;
  RunReport report;
};

// Runs the batches as one job; fails the test when the job fails or a row does not come back.
inline BlockRun run_block(Engine& engine, const std::vector<HiddenBatch>& batches, Job job = {}) {
  BatchSource source(batches, engine.spec().hidden_size);
  BatchSink sink(batches);
  job.hidden_source = &source;
  job.hidden_sink = &sink;
  const auto report = engine.run(job);
  EXPECT_TRUE(report.is_ok()) << report.status().to_string();
  std::uint64_t rows = 0;
  for (const HiddenBatch& batch : batches) rows += batch.values.size() / engine.spec().hidden_size;
  EXPECT_EQ(sink.taken, rows);
  BlockRun run;
  run.outputs = std::move(sink.values);
  run.failed = std::move(sink.failed);
  if (report) run.report = *report;
  return run;
}

}  // namespace colibri::testing
