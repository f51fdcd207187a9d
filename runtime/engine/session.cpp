#include <algorithm>
#include <colibri/session.hpp>
#include <utility>

#include "runtime/engine/contained.hpp"
#include "runtime/engine/home_process.hpp"
#include "runtime/engine/job_thread.hpp"
#include "runtime/engine/open_requests.hpp"

namespace colibri {
namespace {

// Longer than anybody waits, and far from where clocks overflow.
constexpr std::chrono::hours kLongest{24 * 365};

}  // namespace

bool SubmittedRequest::done() const {
  return state_->done.load(std::memory_order_acquire) || state_->process.forked();
}

const RequestResult& SubmittedRequest::wait() const {
  if (!state_->done.load(std::memory_order_acquire)) {
    if (state_->process.forked()) return *state_->forked_result;
    std::unique_lock lock(state_->mutex);
    state_->answered.wait(lock, [this] { return state_->done.load(std::memory_order_acquire); });
  }
  return state_->result;
}

bool SubmittedRequest::wait_for(std::chrono::nanoseconds time) const {
  if (done()) return true;
  std::unique_lock lock(state_->mutex);
  return state_->answered.wait_for(lock, std::min<std::chrono::nanoseconds>(time, kLongest),
                                   [this] { return state_->done.load(std::memory_order_acquire); });
}

void SubmittedRequest::cancel() {
  if (done()) return;
  if (const auto session = state_->session.lock()) session->cancel(*state_);
}

struct Session::State {
  HomeProcess process;
  std::shared_ptr<OpenRequests> requests;
  std::unique_ptr<JobThread> job;
};

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<Session>> Session::start(Engine& engine, SessionOptions options) {
  if (options.max_open_requests == 0) {
    return Status(ErrorCode::invalid_input, "max_open_requests is 0, expected at least 1");
  }
  if (takes_hidden_states(engine.pipeline())) {
    return Status(ErrorCode::invalid_input,
                  "the pipeline of the engine takes hidden states, not requests; open the model with "
                  "default_pipeline_yaml(), or start a BlockSession");
  }
  return contained([&]() -> Result<std::unique_ptr<Session>> {
    auto state = std::make_unique<State>();
    state->requests = std::make_shared<OpenRequests>(options.max_open_requests);
    OpenRequests& requests = *state->requests;
    COLIBRI_ASSIGN_OR_RETURN(
        state->job, JobThread::start(engine, {.source = &requests, .sink = &requests},
                                     [&requests](const Result<RunReport>& report) { requests.end(report); }));
    return std::unique_ptr<Session>(new Session(std::move(state)));
  });
}

Session::~Session() {
  if (state_->process.forked()) {
    (void)state_.release();  // the threads that use it are in another process
    return;
  }
  state_->requests->cancel_all();
  state_->requests->close();
}

Result<SubmittedRequest> Session::submit(Request request, RequestCallbacks callbacks) {
  if (state_->process.forked()) return HomeProcess::forked_status();
  return contained([&] { return state_->requests->submit(std::move(request), std::move(callbacks)); });
}

RunReport Session::stats() const { return state_->process.forked() ? RunReport() : state_->job->stats(); }

bool Session::running() const { return !state_->process.forked() && state_->job->running(); }

Result<RunReport> Session::close() {
  if (state_->process.forked()) return HomeProcess::forked_status();
  return contained([&] {
    state_->requests->close();
    return state_->job->wait();
  });
}

void Session::cancel() {
  if (!state_->process.forked()) state_->requests->cancel_all();
}

}  // namespace colibri
