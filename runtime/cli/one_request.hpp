// Running a few requests that exist in memory, as opposed to a file of them.
#pragma once

#include <colibri/engine.hpp>
#include <functional>
#include <string_view>
#include <vector>

namespace colibri::cli {

// Runs the requests as one job; results in the order of the requests. A request that fails has its error in
// its result. Errors: those of Engine::run.
struct RequestsRun {
  std::vector<RequestResult> results;
  RunReport report;
};
struct RequestsOptions {
  TraceRecorder* trace = nullptr;
  std::function<void(std::string_view)> piece;  // streamed text (requests with stream set)
  std::function<bool()> stopping;
};
Result<RequestsRun> run_requests(Engine& engine, std::vector<Request> requests,
                                 const RequestsOptions& options);

// One request; its own error becomes the error of the call.
Result<RequestResult> run_one(Engine& engine, Request request, TraceRecorder* trace = nullptr);

}  // namespace colibri::cli
