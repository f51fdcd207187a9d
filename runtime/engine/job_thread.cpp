#include "runtime/engine/job_thread.hpp"

#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace colibri {
namespace {

// Blocks signals on the calling thread, and so on those that it makes meanwhile.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    // Raised by what a thread does itself: blocked, they would end the process without the host's handlers.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
      sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

JobThread::JobThread(Engine& engine, Job job, Ended ended)
    : engine_(engine), job_(std::move(job)), ended_(std::move(ended)) {
  job_.started = [this, started = std::move(job_.started)]() -> Status {
    if (started) COLIBRI_RETURN_IF_ERROR(started());
    const std::lock_guard lock(mutex_);
    started_ = true;
    changed_.notify_all();
    return {};
  };
}

Result<std::unique_ptr<JobThread>> JobThread::start(Engine& engine, Job job, Ended ended) {
  if (engine.forked()) return HomeProcess::forked_status();
  try {
    std::unique_ptr<JobThread> made(new JobThread(engine, std::move(job), std::move(ended)));
    COLIBRI_RETURN_IF_ERROR(made->launch());
    return made;
  } catch (const std::bad_alloc&) {
    return Status::no_memory();
  } catch (const std::system_error& error) {
    return Status(ErrorCode::out_of_memory, std::string("no thread for the job: ") + error.what() +
                                                "; raise the limit of threads (`ulimit -u`)");
  }
}

Status JobThread::launch() {
  {
    const BlockedSignals blocked;
    thread_ = std::thread([this] { run(); });
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_ || result_; });
  return started_ ? Status() : result_->status();  // ok also when it ended well that early
}

void JobThread::run() {
  Result<RunReport> result = engine_.run(job_);
  running_.store(false, std::memory_order_release);
  RunReport last;
  try {
    last = result ? result.value() : engine_.stats();
  } catch (const std::bad_alloc&) {  // then nothing is known of what the job has done
  }
  std::unique_lock lock(mutex_);
  const bool taken = started_ || result.is_ok();  // start has returned this, or will
  lock.unlock();
  if (taken && ended_) ended_(result);
  lock.lock();
  last_stats_ = std::move(last);
  result_.emplace(std::move(result));
  changed_.notify_all();
}

JobThread::~JobThread() {
  if (thread_.joinable()) thread_.join();
}

Result<RunReport> JobThread::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return result_.has_value(); });
  return *result_;
}

RunReport JobThread::stats() {
  {
    const std::lock_guard lock(mutex_);
    if (result_) return last_stats_;
  }
  return engine_.stats();
}

}  // namespace colibri
