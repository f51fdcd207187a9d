#include "io/read/throttle_lanes.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "io/read/backend_thread.hpp"

namespace colibri {
namespace {

using Clock = std::chrono::steady_clock;

// A change of the rate moves the ends of reads that are held: it is heard of in this time.
constexpr std::chrono::milliseconds kLongestWait{10};

}  // namespace

ThrottleLanes::ThrottleLanes(ReadPace pace, std::uint32_t lanes, RawSink& sink)
    : pace_(std::move(pace)), sink_(sink), lanes_(lanes) {
  held_.reserve(lanes);
  thread_ = start_backend_thread("colibri-pace", [this] { deliver_held(); });
}

ThrottleLanes::~ThrottleLanes() {
  inner_.reset();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ThrottleLanes::start(std::uint32_t lane, const RawRead& read) noexcept {
  lanes_[lane].begin(pace_.drive_of(read.file), pace_.limit.get(), Clock::now() + read.delay, read.length);
  inner_->start(lane, read);
}

void ThrottleLanes::on_read(std::uint32_t lane, const RawResult& result) {
  if (lanes_[lane].end() > Clock::now()) {
    const std::lock_guard lock(mutex_);
    held_.push_back({lane, result});
    changed_.notify_one();
    return;
  }
  lanes_[lane].finish();
  sink_.on_read(lane, result);
}

void ThrottleLanes::deliver_held() {
  // Timers are otherwise late by 50 us, as long as a small read takes.
  (void)::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (held_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = std::min_element(held_.begin(), held_.end(), [this](const Held& a, const Held& b) {
      return lanes_[a.lane].end() < lanes_[b.lane].end();
    });
    const Clock::time_point end = lanes_[first->lane].end();
    if (const Clock::time_point now = Clock::now(); end > now) {
      changed_.wait_until(lock, std::min(end, now + kLongestWait));
      continue;
    }
    const Held held = *first;
    held_.erase(first);
    lock.unlock();
    lanes_[held.lane].finish();
    sink_.on_read(held.lane, held.result);
    lock.lock();
  }
}

}  // namespace colibri
