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
      notifying_ = static_cast<bool>(notify);  // nothing when it was withdrawn
    }
    if (!notify) continue;
    notify();
    {
      const std::lock_guard lock(mutex_);
      notifying_ = false;
    }
    notified_.notify_all();
  }
}

void JsonlWaiter::withdraw() {
  std::unique_lock lock(mutex_);
  notify_ = nullptr;
  notified_.wait(lock, [this] { return !notifying_; });
}

void JsonlWaiter::poll_input() {
  pollfd waiting[2] = {{descriptor_, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  while (::poll(waiting, 2, static_cast<int>(kPatience.count())) < 0 && errno == EINTR) {
  }
}

}  // namespace colibri
