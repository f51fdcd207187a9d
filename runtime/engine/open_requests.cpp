#include "runtime/engine/open_requests.hpp"

#include <array>
#include <string>
#include <utility>

#include "stages/sequence_output.hpp"

namespace colibri {
namespace {

// What a request that is answered without the pipeline is told, but for the error.
RequestResult unanswered(const Request& request) {
  RequestResult result = empty_result(request, static_cast<std::uint32_t>(request.tokens.size()), nullptr);
  result.finish_reason = FinishReason::error;
  return result;
}

std::shared_ptr<const RequestResult> forked_answer() {
  auto result = std::make_shared<RequestResult>();
  result->finish_reason = FinishReason::error;
  result->error = HomeProcess::forked_status();
  return result;
}

// A child that fork made has only a copy: threads of the parent may wait for it, and to destroy it would wait
// for them.
void let_go(SubmittedRequest::State* state) {
  if (!state->process.forked()) delete state;
}

}  // namespace

OpenRequests::OpenRequests(std::uint32_t most)
    : most_(most),
      forked_result_(forked_answer()),
      cancelled_status_(ErrorCode::cancelled, "the request was cancelled") {}

Result<SubmittedRequest> OpenRequests::submit(Request request, RequestCallbacks callbacks) {
  const std::shared_ptr<State> state(new State, let_go);
  state->session = weak_from_this();
  state->forked_result = forked_result_;
  request.stream |= callbacks.piece != nullptr;
  state->callbacks = std::move(callbacks);

  const std::lock_guard lock(mutex_);
  COLIBRI_RETURN_IF_ERROR(refusal());
  state->index = request.index = next_index_;
  state->result = unanswered(request);
  state->request = std::move(request);
  queued_.emplace_hint(queued_.end(), next_index_, state);
  ++next_index_;
  tell_ready();
  return SubmittedRequest(state);
}

// Why there can be no further request. The caller holds the lock.
Status OpenRequests::refusal() const {
  if (ended_ && !failure_) return failure_;
  if (closed_) return {ErrorCode::cancelled, "the session is closed; start another one"};
  if (queued_.size() + cancelled_.size() + pulled_.size() < most_) return {};
  return {ErrorCode::capacity, "as many requests are open as may be: " + std::to_string(most_) +
                                   "; wait for one, or raise max_open_requests"};
}

void OpenRequests::cancel(State& state) {
  const std::lock_guard lock(mutex_);
  if (auto node = queued_.extract(state.index)) {
    cancelled_.insert(std::move(node));
  } else if (!pulled_.contains(state.index)) {
    return;
  }
  state.cancelled.store(true, std::memory_order_release);
  tell_cancelled();
}

void OpenRequests::cancel_all() {
  const std::lock_guard lock(mutex_);
  cancelled_.merge(queued_);
  for (const auto* states : {&cancelled_, &pulled_}) {
    for (const auto& [index, state] : *states) state->cancelled.store(true, std::memory_order_release);
  }
  tell_cancelled();
}

void OpenRequests::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  tell_ready();
}

void OpenRequests::end(const Result<RunReport>& report) noexcept {
  std::array<States, 3> left;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    // A job that ended well was closed; what it left was cancelled.
    failure_ = report ? Status() : report.status();
    left[0].swap(queued_);
    left[1].swap(cancelled_);
    left[2].swap(pulled_);
  }
  for (const States& states : left) {
    for (const auto& [index, state] : states) {
      state->result.error = report ? cancelled_status_ : report.status();
      try {
        answer(*state);
      } catch (...) {  // a callback of the host's: the job has its end already
      }
    }
  }
}

RequestSource::Pull OpenRequests::pull(Request& request) {
  const std::lock_guard lock(mutex_);
  States& next = queued_.empty() ? cancelled_ : queued_;
  if (next.empty()) return closed_ ? Pull::end : Pull::wait;
  take_first(next, request);
  ++pulls_;
  return Pull::request;
}

std::uint64_t OpenRequests::pulled() const {
  const std::lock_guard lock(mutex_);
  return pulls_;
}

bool OpenRequests::pull_cancelled(Request& request) {
  const std::lock_guard lock(mutex_);
  if (cancelled_.empty()) return false;
  take_first(cancelled_, request);
  return true;
}

// The caller holds the lock.
void OpenRequests::take_first(States& from, Request& request) {
  auto node = from.extract(from.begin());
  const std::shared_ptr<State>& state = node.mapped();
  request = std::move(state->request);
  request.cancelled = {state, &state->cancelled};
  pulled_.insert(std::move(node));
}

void OpenRequests::on_ready(std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  ready_ = std::move(notify);
  if (closed_ || !queued_.empty() || !cancelled_.empty()) tell_ready();
}

void OpenRequests::on_cancelled(std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  cancels_ = std::move(notify);
  if (cancels_untold_) tell_cancelled();
}

// Both are called with the lock held: so, once a question is taken back, nobody is told any more.
void OpenRequests::tell_ready() {
  if (auto notify = std::exchange(ready_, nullptr)) notify();
}

void OpenRequests::tell_cancelled() {
  const auto notify = std::exchange(cancels_, nullptr);
  cancels_untold_ = !notify;
  if (notify) notify();
}

Status OpenRequests::result(RequestResult&& result) {
  std::shared_ptr<State> state;
  {
    const std::lock_guard lock(mutex_);
    auto node = pulled_.extract(result.index);
    if (!node) {
      return {ErrorCode::internal,
              "a result for a request that is not open: " + std::to_string(result.index)};
    }
    state = std::move(node.mapped());
  }
  state->result = std::move(result);
  answer(*state);
  return {};
}

void OpenRequests::piece(std::uint64_t index, std::string_view text) {
  std::shared_ptr<State> state;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pulled_.find(index);
    if (found == pulled_.end()) return;  // answered: the text was told with the answer
    state = found->second;
  }
  state->told_bytes += text.size();
  if (state->callbacks.piece) state->callbacks.piece(text);
}

// Tells the host, then those who wait. By one thread at a time: that of the results, or when there are no
// more, that of the job.
void OpenRequests::answer(State& state) {
  struct Answered {
    ~Answered() {
      state.callbacks = {};
      const std::lock_guard lock(state.mutex);
      state.done.store(true, std::memory_order_release);
      state.answered.notify_all();
    }
    State& state;
  } answered{state};
  const std::string& text = state.result.text;
  // The answer to a cancelled request may come before the last of its pieces, which take another way.
  if (state.callbacks.piece && state.told_bytes < text.size()) {
    state.callbacks.piece(std::string_view(text).substr(state.told_bytes));
  }
  if (state.callbacks.done) state.callbacks.done(state.result);
}

}  // namespace colibri
