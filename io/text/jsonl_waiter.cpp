#include "io/text/jsonl_waiter.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace colibri {

JsonlWaiter::~JsonlWaiter() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  asked_.notify_one();
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void JsonlWaiter::when_readable(std::function<void()> notify) {
  if (!thread_.joinable()) {
    wake_ = UniqueDescriptor(::eventfd(0, EFD_CLOEXEC));
    try {
      if (wake_) thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {  // no thread to be had: the next read blocks instead
    }
    if (!thread_.joinable()) {
      notify();
      return;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    notify_ = std::move(notify);
  }
  asked_.notify_one();
}

void JsonlWaiter::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      asked_.wait(lock, [this] { return stopping_ || notify_; });
      if (stopping_) return;
    }
    poll_input();
    std::function<void()> notify;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      notify = std::exchange(notify_, nullptr);
    }
    notify();
  }
}

void JsonlWaiter::poll_input() {
  pollfd waiting[2] = {{descriptor_, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  while (::poll(waiting, 2, -1) < 0 && errno == EINTR) {
  }
}

}  // namespace colibri
