// A signalfd, an eventfd to end the wait, and the thread between them.
#include "runtime/cli/stop_signals.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace colibri::cli {
namespace {

// What a shell reports for a process that a signal ended.
constexpr int kSignalStatusBase = 128;

sigset_t stop_set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

Status system_error(const char* what) {
  return Status(ErrorCode::io,
                std::string("cannot watch for signals: ") + what + ": " + std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<StopSignals>> StopSignals::start(std::function<void(int)> on_stop) {
  const sigset_t set = stop_set();
  const int signals = ::signalfd(-1, &set, SFD_CLOEXEC);
  if (signals < 0) return system_error("signalfd");
  const int wake = ::eventfd(0, EFD_CLOEXEC);
  if (wake < 0) {
    const Status status = system_error("eventfd");
    ::close(signals);
    return status;
  }
  std::unique_ptr<StopSignals> watcher(new StopSignals(std::move(on_stop), signals, wake));
  try {
    watcher->thread_ = std::thread([&self = *watcher] { self.wait_for_signals(); });
  } catch (const std::system_error& error) {
    return Status(ErrorCode::io, std::string("cannot watch for signals: no thread: ") + error.what());
  }
  return watcher;
}

StopSignals::StopSignals(std::function<void(int)> on_stop, int signals, int wake)
    : on_stop_(std::move(on_stop)), signals_(signals), wake_(wake) {
  const sigset_t set = stop_set();
  ::pthread_sigmask(SIG_BLOCK, &set, &mask_before_);
}

StopSignals::~StopSignals() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    // An eventfd that holds 0 takes the write; without it the join would wait for a signal.
    while (::write(wake_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  ::close(wake_);
  ::close(signals_);
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void StopSignals::on_second(std::function<void()> cancel) {
  const std::lock_guard lock(mutex_);
  cancel_ = std::move(cancel);
}

// False when there is nothing to cancel.
bool StopSignals::cancel() {
  const std::lock_guard lock(mutex_);
  if (!cancel_) return false;
  cancel_();
  return true;
}

void StopSignals::wait_for_signals() {
  int seen = 0;
  pollfd sources[2] = {{signals_, POLLIN, 0}, {wake_, POLLIN, 0}};
  for (;;) {
    if (::poll(sources, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if ((sources[1].revents & POLLIN) != 0) return;
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (++seen > 1) {
      if (seen == 2 && cancel()) continue;
      ::_exit(kSignalStatusBase + signal);
    }
    received_.store(signal, std::memory_order_release);
    if (on_stop_) on_stop_(signal);
  }
}

}  // namespace colibri::cli
