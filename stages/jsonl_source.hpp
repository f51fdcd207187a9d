// JsonlSource feeds the lines of a JSONL input to the read stage.
//
// It leaves out lines that an earlier run has answered, and counts what it has read so that
// another thread can show progress. Input that can be read only once has its ids checked
// here, as they come: the later of two lines with one id is answered with an error.
#pragma once

#include <atomic>
#include <colibri/services.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "io/text/jsonl_reader.hpp"
#include "io/text/jsonl_waiter.hpp"
#include "io/text/request_parser.hpp"
#include "io/text/request_scan.hpp"
#include "io/text/result_index_set.hpp"

namespace colibri {

struct JsonlSourceOptions {
  Task task = Task::generate;
  RequestDefaults defaults;
  const Tokenizer* tokenizer = nullptr;       // null: token ids only; must outlive the source
  const ResultIndexSet* completed = nullptr;  // lines to leave out; must outlive the source
  bool check_ids = false;                     // for input that scan_requests cannot check first
};

class JsonlSource final : public RequestSource {
 public:
  JsonlSource(JsonlReader reader, JsonlSourceOptions options);

  Pull pull(Request& request) override;
  bool finite() const override { return reader_.is_regular_file(); }
  void on_ready(std::function<void()> notify) override;

  // A failed read ends the input; the job has then failed. Any thread.
  Status failure() const;
  // Progress, any thread. Bytes and lines are of what was taken from the input, also left-out lines.
  std::uint64_t bytes_read() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  std::uint64_t lines_read() const noexcept { return lines_.load(std::memory_order_relaxed); }
  std::uint64_t requests() const noexcept { return requests_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_total() const noexcept { return reader_.bytes_total(); }  // 0: not known

 private:
  void parse(const JsonlLine& line, Request& request);
  bool left_out(const JsonlLine& line);

  JsonlReader reader_;
  JsonlSourceOptions options_;
  IdSet ids_;
  JsonlWaiter waiter_;  // after reader_, whose descriptor it polls
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> lines_{0};
  std::atomic<std::uint64_t> requests_{0};
  mutable std::mutex mutex_;
  Status failure_;
};

}  // namespace colibri
