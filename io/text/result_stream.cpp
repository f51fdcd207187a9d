#include "io/text/result_stream.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace colibri {
namespace {

constexpr std::size_t kGatherBytes = std::size_t{64} << 10;

// While this lives a broken pipe gives EPIPE to this thread and no SIGPIPE, without touching
// the process's handlers: the signal is blocked, and taken away if our write caused it.
class PipeSignalGuard {
 public:
  PipeSignalGuard() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeSignalGuard() {
    if (!was_pending_) {
      const timespec now{};
      while (::sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
      }
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  PipeSignalGuard(const PipeSignalGuard&) = delete;
  PipeSignalGuard& operator=(const PipeSignalGuard&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace

Result<std::unique_ptr<ResultStream>> ResultStream::open(const std::string& path) {
  if (path.empty() || path == "-") {
    return std::make_unique<ResultStream>(UniqueDescriptor(STDOUT_FILENO, false), "standard output");
  }
  COLIBRI_ASSIGN_OR_RETURN(UniqueDescriptor descriptor, open_file(path, O_WRONLY));
  return std::make_unique<ResultStream>(std::move(descriptor), path);
}

Status ResultStream::append(std::uint64_t, std::string_view line, bool) {
  if (!failure_.is_ok()) return failure_;
  unwritten_ += line;
  if (unwritten_.size() >= kGatherBytes) failure_ = write_out();
  return failure_;
}

Status ResultStream::flush() {
  if (failure_.is_ok()) failure_ = write_out();
  return failure_;
}

Status ResultStream::write_out() {
  const PipeSignalGuard guard;
  std::string_view rest = unwritten_;
  while (!rest.empty()) {
    const ssize_t count = ::write(descriptor_.get(), rest.data(), rest.size());
    if (count >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {  // somebody made our output non-blocking
      pollfd ready{descriptor_.get(), POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return system_error("write to", name_, errno);
    }
  }
  unwritten_.clear();
  return {};
}

}  // namespace colibri
