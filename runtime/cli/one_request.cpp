#include "runtime/cli/one_request.hpp"

#include <utility>

#include "stages/list_source.hpp"

namespace colibri::cli {
namespace {

class VectorSink final : public ResultSink {
 public:
  VectorSink(std::size_t count, std::function<void(std::string_view)> piece)
      : results_(count), piece_(std::move(piece)) {}
  Status result(RequestResult&& result) override {
    results_[result.index] = std::move(result);
    return {};
  }
  void piece(std::uint64_t, std::string_view text) override {
    if (piece_) piece_(text);
  }
  Status flush() override { return {}; }
  std::vector<RequestResult>& results() { return results_; }

 private:
  std::vector<RequestResult> results_;
  std::function<void(std::string_view)> piece_;
};

}  // namespace

Result<RequestsRun> run_requests(Engine& engine, std::vector<Request> requests,
                                 const RequestsOptions& options) {
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].index = i;
  VectorSink sink(requests.size(), options.piece);
  ListSource source(std::move(requests));
  Job job;
  job.source = &source;
  job.sink = &sink;
  job.trace = options.trace;
  job.stopping = options.stopping;
  COLIBRI_ASSIGN_OR_RETURN(RunReport report, engine.run(job));
  return RequestsRun{std::move(sink.results()), std::move(report)};
}

Result<RequestResult> run_one(Engine& engine, Request request, TraceRecorder* trace) {
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  COLIBRI_ASSIGN_OR_RETURN(RequestsRun run, run_requests(engine, std::move(requests), {.trace = trace}));
  if (!run.results.front().error.is_ok()) return run.results.front().error;
  return std::move(run.results.front());
}

}  // namespace colibri::cli
