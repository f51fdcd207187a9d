// JobThread: a job of an engine on a thread of its own, for sessions.
//
// The thread takes no signals: those are for the host's threads. (Faults of the thread itself
// stay as they are.) What the pipeline calls (source, sink) is the session's; this class starts
// the job, keeps how it ended, and waits for it.
#pragma once

#include <atomic>
#include <colibri/engine.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/engine/home_process.hpp"

namespace colibri {

class JobThread {
 public:
  // How the job ended, told on its thread before anybody who waits for it goes on. It must not throw, nor
  // wait for this thread.
  using Ended = std::function<void(const Result<RunReport>&)>;

  // Returns when all stages of the job have started, or with why they have not: then `ended` is not called.
  // `job.started` is called before. The engine, and what the job points to, must outlive this.
  static Result<std::unique_ptr<JobThread>> start(Engine& engine, Job job, Ended ended);
  // Waits for the end of the job, which somebody must have brought about. In a child that fork made it may
  // only be leaked.
  ~JobThread();
  JobThread(const JobThread&) = delete;
  JobThread& operator=(const JobThread&) = delete;

  // Waits for the end of the job. Thread-safe; not on the job's own threads.
  Result<RunReport> wait();
  // False once the job has ended, before `ended` is called. Thread-safe.
  bool running() const noexcept { return running_.load(std::memory_order_acquire); }
  // What the job has done so far, or had done at its end. Thread-safe.
  RunReport stats();

 private:
  JobThread(Engine& engine, Job job, Ended ended);
  Status launch();
  void run();

  Engine& engine_;
  Job job_;
  Ended ended_;
  std::atomic<bool> running_{true};
  std::mutex mutex_;  // of what follows, but for the thread
  std::condition_variable changed_;
  bool started_ = false;
  std::optional<Result<RunReport>> result_;  // once the job has ended
  RunReport last_stats_;                     // from then on
  std::thread thread_;
};

}  // namespace colibri
