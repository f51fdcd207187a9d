// Session: an engine at work for a host that submits requests one at a time.
//
//   auto session = Session::start(*engine);
//   auto request = session.value()->submit({.tokens = {1, 2, 3}, .max_tokens = 16});
//   const RequestResult& result = request.value().wait();
//
// Requests that are open at the same time share steps, so that a host which submits many and
// then waits has the throughput of a batch job; results do not depend on what they share
// steps with. A session is a job of its engine: one at a time. Its thread is the only one
// that it makes; everything else runs on the engine's. In a child that fork made, requests that
// were open are answered with ErrorCode::forked, and so is every call; nothing is freed there.
#pragma once

#include <chrono>
#include <colibri/engine.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "io/text/request.hpp"
#include "kernels/export.hpp"

namespace colibri {

// A request of a session, open until it is answered. Copies are the same request. May be kept when the
// session has gone: what was open then is answered with ErrorCode::cancelled. All functions are thread-safe.
class COLIBRI_API SubmittedRequest {
 public:
  struct COLIBRI_HIDDEN State;
  explicit SubmittedRequest(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool done() const;  // answered, and its callbacks have returned
  // The answer; its `error` says why there is none. Waits for it; valid as long as a copy of this lives. Not
  // to be called from a callback, which the pipeline waits for.
  const RequestResult& wait() const;
  // False when there is no answer after that time.
  bool wait_for(std::chrono::nanoseconds time) const;
  // Asks for an early end: when the step that the request is in ends, it is answered with
  // ErrorCode::cancelled and the tokens so far. Without effect when it is answered already.
  void cancel();

 private:
  std::shared_ptr<State> state_;
};

// Called on a thread of the pipeline (or, when the job fails, of the session), which waits for their return:
// hand over and go. They must not wait for requests, nor close or destroy the session; submit and cancel are
// allowed. One that throws fails the job.
struct RequestCallbacks {
  // Text as it is made; in sum the text of the result. Nothing for models without a tokenizer.
  std::function<void(std::string_view text)> piece;
  // The answer, once, after the last piece. Then the callbacks, and what they hold, are let go.
  std::function<void(const RequestResult& result)> done;
};

struct SessionOptions {
  // Requests that may be open at a time; submit refuses one more with ErrorCode::capacity.
  std::uint32_t max_open_requests = 65'536;
};

class COLIBRI_API Session {
 public:
  // Starts a job on the engine, which must outlive the session. Errors: those of Engine::run before its first
  // step, for example a job that runs already; out_of_memory when no thread can be made.
  static Result<std::unique_ptr<Session>> start(Engine& engine, SessionOptions options = {});
  // Cancels what is open and waits for the end of the job. Not to be called from a callback.
  ~Session();

  // Queues a request. `index`, `cancelled` and, for a `piece`, `stream` are set by the session; `id` is the
  // host's. Errors: capacity (see SessionOptions), cancelled (the session is closed), the failure that has
  // ended the job. What is wrong with the request itself is its answer. Thread-safe.
  Result<SubmittedRequest> submit(Request request, RequestCallbacks callbacks = {});

  // What the job has done so far. Thread-safe.
  RunReport stats() const;
  // False once the job has ended, for whatever reason: nothing is taken any more, and close says why.
  // Thread-safe.
  bool running() const;
  // Takes no more requests, waits until all are answered, and ends the job: its report, or why it failed.
  // Called again, it says the same. Thread-safe; not to be called from a callback.
  Result<RunReport> close();
  // Asks for an early end of all open requests; the session stays open. Thread-safe.
  void cancel();

 private:
  struct COLIBRI_HIDDEN State;
  COLIBRI_HIDDEN explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace colibri
