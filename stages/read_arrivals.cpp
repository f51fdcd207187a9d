#include "stages/read_arrivals.hpp"

#include <algorithm>
#include <utility>

namespace colibri {

void ReadArrivals::arrived(ReadCompletion&& done) {
  const auto tag = static_cast<std::uint32_t>(done.tag);
  status_[tag] = std::move(done.status);
  post({.first = tag});
}

void ReadArrivals::post(const Message& message) {
  const std::lock_guard lock(mutex_);
  if (port_ != nullptr) port_->post(message);
}

void ReadArrivals::say(const std::function<void(std::string)>& log, std::string line) {
  const std::lock_guard lock(mutex_);
  if (port_ != nullptr) log(std::move(line));
}

void ReadArrivals::close() {
  const std::lock_guard lock(mutex_);
  port_ = nullptr;
}

ReadWatch::ReadWatch(std::shared_ptr<ReadArrivals> arrivals, std::chrono::milliseconds period)
    : arrivals_(std::move(arrivals)), period_(period), thread_([this] { run(); }) {}

ReadWatch::~ReadWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

void ReadWatch::run() {
  std::unique_lock lock(mutex_);
  const auto period = [this] { return std::min(period_.load(std::memory_order_relaxed), kLongestPeriod); };
  while (!stopped_.wait_for(lock, period(), [this] { return stopping_; })) {
    if (!active_.load(std::memory_order_relaxed)) continue;
    // At most one tick in the queue, whose size counts on it.
    if (!outstanding_.exchange(true, std::memory_order_relaxed)) arrivals_->post({.first = ReadArrivals::kTick});
  }
}

}  // namespace colibri
