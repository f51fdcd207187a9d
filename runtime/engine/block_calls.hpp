// BlockCalls: the open calls of a BlockSession, as the source and the sink of its job.
//
// Calls are cut into steps in the order in which they came; a step has rows of one call. A
// call is answered when the last of its rows is back, when it is cancelled and none of them
// is on its way, or when the job ends. Whoever finds that, takes the call out of the table
// under the lock, so that it is answered once, and answers it without the lock.
#pragma once

#include <atomic>
#include <chrono>
#include <colibri/block_session.hpp>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/engine/home_process.hpp"

namespace colibri {

class BlockCalls;

// One call. Fields without a word of whose they are: of BlockCalls, under its lock.
struct SubmittedBlock::State {
  using Clock = std::chrono::steady_clock;
  HomeProcess process;
  std::shared_ptr<BlockCalls> calls;             // never changes
  BlockCall call;                                // never changes
  std::function<void(const BlockAnswer&)> done;  // of whoever answers
  std::uint64_t number = 0;                      // never changes
  Clock::time_point begin;                       // never changes
  std::uint32_t wanted = 0;                      // rows that are to be computed
  std::uint32_t pulled = 0;                      // of these, rows that a step has taken
  std::uint32_t back = 0;                        // of these, rows that came back
  bool cancelled = false;
  std::uint32_t failed_row = 0;  // the first, when `failure` is not ok
  Status failure;
  BlockAnswer answer;                 // of whoever answers, then of all
  std::atomic<bool> answered{false};  // changes under the lock
  std::condition_variable changed;
};

class BlockCalls final : public HiddenSource,
                         public HiddenSink,
                         public std::enable_shared_from_this<BlockCalls> {
 public:
  using Call = std::shared_ptr<SubmittedBlock::State>;
  using Done = std::function<void(const BlockAnswer&)>;

  BlockCalls(std::uint32_t hidden, std::uint32_t experts_per_token)
      : hidden_(hidden), experts_per_token_(experts_per_token) {}

  // The call is good. Errors: why no more are taken.
  Result<Call> add(const BlockCall& call, Done done, SubmittedBlock::State::Clock::time_point begin);
  void cancel(SubmittedBlock::State& call);
  void cancel_all();
  // Takes no more: the job ends when what is there is computed.
  void close();
  // Answers what is open with how the job has ended.
  void job_ended(const Result<RunReport>& result);
  BlockAnswer wait(SubmittedBlock::State& call);

  Result<Pull> pull(HiddenRows& rows, std::span<float> residual) override;
  void on_ready(std::function<void()> notify) override;
  Status rows(const HiddenRows& rows, const HiddenResults& results) override;

 private:
  bool ready_locked() const { return !queue_.empty() || some_cancelled_ || closed_; }
  void notify_locked();
  std::vector<Call> drop_cancelled_locked();
  void copy_out(const SubmittedBlock::State& call, const HiddenRows& rows,
                const HiddenResults& results) const;
  Status answer(SubmittedBlock::State& call, Status status);

  const std::size_t hidden_;
  const std::size_t experts_per_token_;
  std::mutex mutex_;  // of what follows
  std::uint64_t next_number_ = 0;
  std::unordered_map<std::uint64_t, Call> open_;  // those that nobody answers yet
  std::deque<Call> queue_;                        // of these, those with rows that no step has taken
  bool some_cancelled_ = false;                   // since the queue was looked through
  bool closed_ = false;
  Status ended_;                  // not ok: no call is taken, and this is why
  std::function<void()> notify_;  // of a pull that waits
};

}  // namespace colibri
