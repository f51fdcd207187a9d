// RequestFileJob: a file of requests as source and sink of a job; results that survive a crash.
//
// What `colibri batch` and hosts share: the scan for duplicate ids, the results file with its
// journal, and what may be gone on with. In this order: scan, open_results before the weights are
// loaded, open_source with the engine, begin when the stages have started, run, end.
#pragma once

#include <colibri/engine.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "io/text/request.hpp"
#include "io/text/request_scan.hpp"
#include "io/text/result_file.hpp"

namespace colibri {

class JsonlSink;
class JsonlSource;
class ResultStream;

struct RequestFile {
  std::string input;   // a path, or "-" for standard input
  std::string output;  // a path; "" or "-" for standard output
  Task task = Task::generate;
  std::uint64_t seed = 0;  // of the job: seeds of lines without one are made from it and their id
  ResultMode mode = ResultMode::fresh;
  bool in_order = false;  // sorts the results at the end
};

class RequestFileJob {
 public:
  explicit RequestFileJob(RequestFile file);
  ~RequestFileJob();

  // Input that can be read only once: standard input, a pipe, a device.
  bool streamed() const noexcept { return streamed_; }
  bool to_file() const noexcept { return to_file_; }
  // Looks at the input: duplicate ids show before the model is opened. `stopping` may be empty.
  Status scan(const std::function<bool()>& stopping);
  // What the job will be, for a model that is opened for it alone; empty when that is not known.
  Result<Workload> workload(const Container& container, const Tokenizer* tokenizer) const;
  // Refuses what the results file refuses; changes nothing in it.
  Status open_results(const Container& container);
  Status open_source(const Engine& engine);
  // From here on results of earlier jobs may go.
  Status begin();

  RequestSource& source();
  ResultSink& sink();

  // The job has ended. `complete`: every request has its answer, else the rest can be gone on with.
  Status end(bool complete);

  // Requests, and what is answered, with what an earlier job has left. Any thread.
  std::uint64_t requests() const noexcept;  // known after the scan; of a stream as far as it was read
  std::uint64_t answered() const noexcept;
  std::uint64_t failed() const noexcept;    // of these, with an error
  std::uint64_t taken_up() const noexcept;  // of these, by an earlier job
  // What a resumed job had to cut off; empty when nothing.
  std::string note() const;

 private:
  const RequestFile file_;
  const bool streamed_;
  const bool to_file_;
  InputScan scan_;
  std::unique_ptr<ResultFile> results_;
  std::unique_ptr<ResultStream> stream_;  // when there is no file
  std::unique_ptr<JsonlSink> sink_;
  std::unique_ptr<JsonlSource> source_;
};

}  // namespace colibri
