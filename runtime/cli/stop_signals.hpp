// StopSignals: SIGINT and SIGTERM as a question that a job may ask.
//
// While an object lives, both signals are blocked in the thread that made it and in all threads
// made after it, and one thread of its own waits for them. The first signal is remembered and
// announced; the second ends the process at once, for a user who will not wait. No handler runs,
// so whatever is called on a signal may lock and allocate. Make it before any other thread.
// A shell starts background jobs with SIGINT ignored; it stops them here too when sent by name.
#pragma once

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>

#include "io/status.hpp"

namespace colibri::cli {

class StopSignals {
 public:
  // `on_stop` may be empty; it is called once, on the waiting thread, with the first signal.
  static Result<std::unique_ptr<StopSignals>> start(std::function<void(int signal)> on_stop = {});
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first signal that came, or 0.
  int received() const noexcept { return received_.load(std::memory_order_acquire); }

 private:
  StopSignals(std::function<void(int)> on_stop, int signals, int wake);
  void wait_for_signals();

  std::function<void(int)> on_stop_;
  int signals_ = -1;  // signalfd
  int wake_ = -1;     // eventfd, written by the destructor
  sigset_t mask_before_{};
  std::atomic<int> received_{0};
  std::thread thread_;
};

}  // namespace colibri::cli
