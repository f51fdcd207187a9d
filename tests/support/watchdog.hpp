// Ends the process when a scope takes longer than it ever should: a hang becomes a failure that says where.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace colibri::testing {

class Watchdog {
 public:
  // The limit is far above what the slowest machine and sanitizer need: it decides nothing but a hang.
  explicit Watchdog(std::string what, std::chrono::seconds limit = std::chrono::seconds(300))
      : what_(std::move(what)), thread_([this, limit] { watch(limit); }) {}
  // Adds what `describe` says at the time of the hang; what it looks at lives until the next call, or the
  // end.
  void look_at(std::function<std::string()> describe) {
    const std::lock_guard lock(mutex_);
    describe_ = std::move(describe);
  }
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    if (ended_.wait_for(lock, limit, [this] { return done_; })) return;
    std::fprintf(stderr, "hangs: %s\n%s\n", what_.c_str(), describe_ ? describe_().c_str() : "");
    std::abort();
  }
  const std::string what_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::function<std::string()> describe_;
  std::thread thread_;
};

}  // namespace colibri::testing
