// JsonlWaiter tells when a pipe or terminal has input, without blocking who asks.
//
// One thread that sleeps in poll; it starts with the first question, so that a file costs
// nothing. Destruction ends a poll at once and drops the question.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "io/text/unique_descriptor.hpp"

namespace colibri {

inline constexpr std::chrono::milliseconds kPatience{200};

class JsonlWaiter {
 public:
  // `descriptor` must stay open while this lives.
  explicit JsonlWaiter(int descriptor) : descriptor_(descriptor) {}
  ~JsonlWaiter();
  JsonlWaiter(const JsonlWaiter&) = delete;
  JsonlWaiter& operator=(const JsonlWaiter&) = delete;

  // Calls `notify` once, from the waiter's thread, when a read would not block (also at the end of
  // the input, on an error, and when polling itself fails: the read then says why), or after
  // kPatience without input, so that who waits can see that its job is stopping. A question that
  // is asked before the last was answered replaces it.
  void when_readable(std::function<void()> notify);
  // Takes the question back: when this returns, its `notify` is not running and will not be called.
  void withdraw();

 private:
  void run();
  void poll_input();

  int descriptor_;
  UniqueDescriptor wake_;  // eventfd; ends the poll
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable asked_;
  std::condition_variable notified_;
  std::function<void()> notify_;
  bool notifying_ = false;  // outside the lock; withdraw waits for its end
  bool stopping_ = false;
};

}  // namespace colibri
