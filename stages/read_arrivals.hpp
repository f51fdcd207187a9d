// ReadArrivals: what reads and their watch tell `fetch`, through its completion port.
//
// Shared with the threads of the read backend: when a drive hangs past the end of a job,
// they outlive the stage, and what they then bring is dropped here. A thread of its own
// posts a tick while reads are in flight, by which the stage finds those past their
// deadline: nothing else would call it when nothing arrives.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <colibri/stage.hpp>

#include "io/read/read_backend.hpp"
#include "io/status.hpp"

namespace colibri {

class ReadArrivals {
 public:
  static constexpr std::uint32_t kTick = std::numeric_limits<std::uint32_t>::max();  // Message::first of a tick

  // Tags of reads are below `tags`.
  ReadArrivals(CompletionPort& port, std::uint32_t tags) : port_(&port), status_(tags) {}

  // Any thread: keeps the status and posts the tag.
  void arrived(ReadCompletion&& done);
  void post(const Message& message);
  // Any thread: calls `log` unless closed.
  void say(const std::function<void(std::string)>& log, std::string line);
  // From here on nothing is posted.
  void close();
  // Stage: how the read ended whose tag was posted.
  Status take_status(std::uint32_t tag) { return std::exchange(status_[tag], Status()); }

 private:
  std::mutex mutex_;
  CompletionPort* port_;         // null: closed
  std::vector<Status> status_;   // [tags] written before the tag is posted, read after it is received
};

// Ticks every `period` while told that reads are in flight. Stops with its destruction.
class ReadWatch {
 public:
  // A longer period is cut to this, so that a new one is heard of soon.
  static constexpr std::chrono::milliseconds kLongestPeriod{1000};

  // Throws std::system_error when no thread can be had.
  ReadWatch(std::shared_ptr<ReadArrivals> arrivals, std::chrono::milliseconds period);
  ~ReadWatch();

  void reads_in_flight(bool any) noexcept { active_.store(any, std::memory_order_relaxed); }
  void set_period(std::chrono::milliseconds period) noexcept { period_.store(period, std::memory_order_relaxed); }
  // The stage has handled the last tick; another one may come.
  void tick_taken() noexcept { outstanding_.store(false, std::memory_order_relaxed); }

 private:
  void run();

  std::shared_ptr<ReadArrivals> arrivals_;
  std::atomic<std::chrono::milliseconds> period_;
  std::atomic<bool> active_{false};
  std::atomic<bool> outstanding_{false};
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace colibri
