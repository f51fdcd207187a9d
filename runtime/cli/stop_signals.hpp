// StopSignals: SIGINT and SIGTERM as a question that a job may ask.
//
// While an object lives, both signals are blocked in the thread that made it and in all threads
// made after it, and one thread of its own waits for them. The first signal is remembered and
// announced. The second cancels the job that runs, if there is one (CancelOnSignal), so that what it
// has done is kept; else, as the third does always, it ends the process at once. No handler runs, so
// whatever is called on a signal may lock and allocate. Make it before any other thread.
// A shell starts background jobs with SIGINT ignored; it stops them here too when sent by name.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "io/status.hpp"

namespace colibri::cli {

class StopSignals {
 public:
  // `on_stop` may be empty; it is called once, on the waiting thread, with the first signal.
  static Result<std::unique_ptr<StopSignals>> start(std::function<void(int signal)> on_stop = {});
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Called with the second signal, on the waiting thread; empty: the process ends instead. When this returns,
  // what was set before is not called any more.
  void on_second(std::function<void()> cancel);

  // The first signal that came, or 0.
  int received() const noexcept { return received_.load(std::memory_order_acquire); }
  // The question as engines and jobs ask it; valid while this lives.
  std::function<bool()> stopping() const {
    return [this] { return received() != 0; };
  }
  // Whether a failure is what a signal asked for.
  bool caused(const Status& status) const { return status.code() == ErrorCode::cancelled && received() != 0; }

 private:
  StopSignals(std::function<void(int)> on_stop, int signals, int wake);
  void wait_for_signals();

  bool cancel();

  std::function<void(int)> on_stop_;
  std::mutex mutex_;
  std::function<void()> cancel_;  // guarded by the mutex
  int signals_ = -1;              // signalfd
  int wake_ = -1;                 // eventfd, written by the destructor
  sigset_t mask_before_{};
  std::atomic<int> received_{0};
  std::thread thread_;
};

// While it lives, a second signal calls `cancel`, which must not wait for the job's end.
class CancelOnSignal {
 public:
  CancelOnSignal(StopSignals& signals, std::function<void()> cancel) : signals_(signals) {
    signals_.on_second(std::move(cancel));
  }
  ~CancelOnSignal() { signals_.on_second({}); }
  CancelOnSignal(const CancelOnSignal&) = delete;
  CancelOnSignal& operator=(const CancelOnSignal&) = delete;

 private:
  StopSignals& signals_;
};

}  // namespace colibri::cli
