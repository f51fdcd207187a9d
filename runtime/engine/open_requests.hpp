// OpenRequests: the requests of a session, on their way from the host to the pipeline and back.
//
// A request is queued until the pipeline pulls it, then pulled until its result comes. One that
// is cancelled while it is queued is set apart, so that the pipeline can answer it before it has
// room for more. Answers go out on the thread that brings them, without the lock: callbacks
// may submit and cancel.
#pragma once

#include <atomic>
#include <colibri/session.hpp>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/engine/home_process.hpp"

namespace colibri {

class OpenRequests;

struct SubmittedRequest::State {
  std::uint64_t index = 0;
  std::weak_ptr<OpenRequests> session;
  std::shared_ptr<const RequestResult> forked_result;  // what a child that fork made is told
  const HomeProcess process;
  std::atomic<bool> cancelled{false};

  Request request;             // until it is pulled
  RequestCallbacks callbacks;  // until it is answered
  std::size_t told_bytes = 0;  // of the text, in pieces
  RequestResult result;        // says whose it is; complete once `done`

  std::mutex mutex;
  std::condition_variable answered;
  std::atomic<bool> done{false};
};

class OpenRequests final : public RequestSource,
                           public ResultSink,
                           public std::enable_shared_from_this<OpenRequests> {
 public:
  using State = SubmittedRequest::State;

  explicit OpenRequests(std::uint32_t most);

  // For the host, from any thread.
  Result<SubmittedRequest> submit(Request request, RequestCallbacks callbacks);
  void cancel(State& state);
  void cancel_all();
  void close();  // no more come
  // The job has ended: what is still open is answered with why.
  void end(const Result<RunReport>& report) noexcept;

  // For the pipeline.
  Pull pull(Request& request) override;
  bool finite() const override { return false; }
  void on_ready(std::function<void()> notify) override;
  void on_cancelled(std::function<void()> notify) override;
  bool pull_cancelled(Request& request) override;
  std::uint64_t pulled() const override;
  Status result(RequestResult&& result) override;
  void piece(std::uint64_t index, std::string_view text) override;
  Status flush() override { return {}; }

 private:
  using States = std::map<std::uint64_t, std::shared_ptr<State>>;  // by index, which ascends

  Status refusal() const;
  void take_first(States& from, Request& request);
  void tell_ready();
  void tell_cancelled();
  static void answer(State& state);

  const std::uint32_t most_;
  // Made beforehand: they are needed where memory may be what is missing.
  const std::shared_ptr<const RequestResult> forked_result_;
  const Status cancelled_status_;
  mutable std::mutex mutex_;  // of what follows
  States queued_, cancelled_, pulled_;
  std::uint64_t next_index_ = 0;
  std::uint64_t pulls_ = 0;
  bool closed_ = false;
  bool ended_ = false;
  Status failure_;                 // of a job that has ended
  std::function<void()> ready_;    // asked for by a pull that waits
  std::function<void()> cancels_;  // asked for by admit
  bool cancels_untold_ = false;    // some came while nobody asked
};

}  // namespace colibri
