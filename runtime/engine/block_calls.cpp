#include "runtime/engine/block_calls.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/engine/contained.hpp"

namespace colibri {
namespace {

Status closed_status() {
  return {ErrorCode::cancelled, "the session is closed; start another one for more calls"};
}

Status call_cancelled() { return {ErrorCode::cancelled, "the call was cancelled"}; }

}  // namespace

Result<BlockCalls::Call> BlockCalls::add(const BlockCall& call, Done done,
                                         SubmittedBlock::State::Clock::time_point begin) {
  auto made = std::make_shared<SubmittedBlock::State>();
  made->calls = shared_from_this();
  made->call = call;
  made->done = std::move(done);
  made->begin = begin;
  made->wanted = call.rows;
  const std::lock_guard lock(mutex_);
  if (!ended_) return ended_;
  if (closed_) return closed_status();
  made->number = next_number_++;
  open_.emplace(made->number, made);
  try {
    queue_.push_back(made);
  } catch (...) {
    open_.erase(made->number);
    throw;
  }
  notify_locked();
  return made;
}

void BlockCalls::cancel(SubmittedBlock::State& call) {
  const std::lock_guard lock(mutex_);
  call.cancelled = true;
  some_cancelled_ = true;
  notify_locked();
}

void BlockCalls::cancel_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, call] : open_) call->cancelled = true;
  some_cancelled_ = true;
  notify_locked();
}

void BlockCalls::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  notify_locked();
}

void BlockCalls::job_ended(const Result<RunReport>& result) {
  std::unordered_map<std::uint64_t, Call> left;
  {
    const std::lock_guard lock(mutex_);
    ended_ = result ? closed_status() : result.status();
    left.swap(open_);
    queue_.clear();
  }
  for (const auto& [number, call] : left) (void)answer(*call, ended_);  // the job has no use for its failure
}

BlockAnswer BlockCalls::wait(SubmittedBlock::State& call) {
  if (!call.answered) {
    std::unique_lock lock(mutex_);
    call.changed.wait(lock, [&call] { return call.answered.load(); });
  }
  return call.answer;
}

Result<HiddenSource::Pull> BlockCalls::pull(HiddenRows& rows, std::span<float> residual) {
  std::vector<Call> dropped;
  Call call;
  Pull nothing = Pull::wait;
  {
    const std::lock_guard lock(mutex_);
    dropped = drop_cancelled_locked();
    if (!queue_.empty()) {
      call = queue_.front();
      rows.first_row = call->pulled;
      rows.rows = static_cast<std::uint32_t>(
          std::min<std::size_t>(call->wanted - call->pulled, residual.size() / hidden_));
      call->pulled += rows.rows;
      if (call->pulled == call->wanted) queue_.pop_front();
    } else if (closed_) {
      nothing = Pull::end;
    }
  }
  Status told;
  for (const Call& one : dropped) {
    Status one_told = answer(*one, call_cancelled());
    if (told) told = std::move(one_told);
  }
  COLIBRI_RETURN_IF_ERROR(told);
  if (call == nullptr) return nothing;
  rows.name = "call " + std::to_string(call->number);
  rows.batch = call->number;
  rows.layer = call->call.layer;
  std::copy_n(call->call.input + rows.first_row * hidden_, rows.rows * hidden_, residual.begin());
  return Pull::rows;
}

// Takes cancelled calls out of the queue. Of those that have rows on their way, these are waited for; the
// others are returned, to be answered.
std::vector<BlockCalls::Call> BlockCalls::drop_cancelled_locked() {
  std::vector<Call> dropped;
  if (!some_cancelled_) return dropped;
  dropped.reserve(queue_.size());  // the only thing here that may fail
  std::erase_if(queue_, [&](const Call& call) {
    if (!call->cancelled) return false;
    call->wanted = call->pulled;
    if (call->back < call->pulled) return true;
    dropped.push_back(call);
    open_.erase(call->number);
    return true;
  });
  some_cancelled_ = false;
  return dropped;
}

void BlockCalls::on_ready(std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  notify_ = std::move(notify);
  if (ready_locked()) notify_locked();
}

// Under the lock: on_ready, which takes the question back, then waits for it.
void BlockCalls::notify_locked() {
  if (!notify_) return;
  notify_();
  notify_ = nullptr;
}

Status BlockCalls::rows(const HiddenRows& rows, const HiddenResults& results) {
  Call call;
  {
    const std::lock_guard lock(mutex_);
    call = open_.at(rows.batch);
  }
  copy_out(*call, rows, results);
  const auto failed = std::find_if(results.status.begin(), results.status.end(),
                                   [](const Status& status) { return !status.is_ok(); });
  Status status;
  {
    const std::lock_guard lock(mutex_);
    call->back += rows.rows;
    if (failed != results.status.end()) {
      const auto row = rows.first_row + static_cast<std::uint32_t>(failed - results.status.begin());
      if (call->failure.is_ok() || row < call->failed_row) {
        call->failed_row = row;
        call->failure = *failed;
      }
    }
    if (call->back < call->wanted) return {};
    open_.erase(call->number);
    if (!call->failure) {
      status = Status(call->failure)
                   .at("layer " + std::to_string(rows.layer) + ", row " + std::to_string(call->failed_row));
    } else if (call->back < call->call.rows) {
      status = call_cancelled();
    }
  }
  return answer(*call, std::move(status));
}

void BlockCalls::copy_out(const SubmittedBlock::State& call, const HiddenRows& rows,
                          const HiddenResults& results) const {
  const BlockCall& to = call.call;
  const std::size_t first = rows.first_row;
  std::copy(results.output.begin(), results.output.end(), to.output + first * hidden_);
  if (to.experts != nullptr)
    std::copy(results.experts.begin(), results.experts.end(), to.experts + first * experts_per_token_);
  if (to.weights != nullptr)
    std::copy(results.weights.begin(), results.weights.end(), to.weights + first * experts_per_token_);
}

// Tells the host first: who waits for the answer may count on the return of the callback. Not ok: the
// callback threw.
Status BlockCalls::answer(SubmittedBlock::State& call, Status status) {
  const std::chrono::duration<double> latency = SubmittedBlock::State::Clock::now() - call.begin;
  call.answer = {std::move(status), latency.count()};
  Status told;
  if (call.done) {
    told = contained(
        [&call]() -> Status {
          call.done(call.answer);
          return {};
        },
        "exception of the host's callback");
    call.done = nullptr;
  }
  const std::lock_guard lock(mutex_);
  call.answered = true;
  call.changed.notify_all();
  return told;
}

}  // namespace colibri
