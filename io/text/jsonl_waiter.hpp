// JsonlWaiter tells when a pipe or terminal has input, without blocking who asks.
//
// One thread that sleeps in poll; it starts with the first question, so that a file costs
// nothing. Destruction ends a poll at once and drops the question.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "io/text/unique_descriptor.hpp"

namespace colibri {

class JsonlWaiter {
 public:
  // `descriptor` must stay open while this lives.
  explicit JsonlWaiter(int descriptor) : descriptor_(descriptor) {}
  ~JsonlWaiter();
  JsonlWaiter(const JsonlWaiter&) = delete;
  JsonlWaiter& operator=(const JsonlWaiter&) = delete;

  // Calls `notify` once, from the waiter's thread, when a read would not block (also at the end of
  // the input, on an error, and when polling itself fails: the read then says why). A question that
  // is asked before the last was answered replaces it.
  void when_readable(std::function<void()> notify);

 private:
  void run();
  void poll_input();

  int descriptor_;
  UniqueDescriptor wake_;  // eventfd; ends the poll
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable asked_;
  std::function<void()> notify_;
  bool stopping_ = false;
};

}  // namespace colibri
