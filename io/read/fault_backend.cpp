#include "io/read/fault_backend.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "io/read/backend_thread.hpp"
#include "io/read/fault_lanes.hpp"
#include "io/read/read_backend.hpp"

namespace colibri {

FaultPlan::FaultPlan(std::vector<Fault> faults) : faults_(std::move(faults)), matched_(faults_.size(), 0) {}

void FaultPlan::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

bool FaultPlan::wait_until_hanging(std::uint32_t count, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return hanging_ >= count; });
}

std::uint32_t FaultPlan::hanging() const {
  const std::lock_guard lock(mutex_);
  return hanging_;
}

std::vector<std::uint64_t> FaultPlan::offsets_started() const {
  const std::lock_guard lock(mutex_);
  return started_;
}

std::optional<Fault> FaultPlan::next(const RawRead& read) {
  const std::lock_guard lock(mutex_);
  started_.push_back(read.offset);
  std::optional<Fault> chosen;
  for (std::size_t i = 0; i < faults_.size(); ++i) {
    const Fault& fault = faults_[i];
    if (fault.file && *fault.file != read.file) continue;
    if (fault.offset && (*fault.offset < read.offset || *fault.offset - read.offset >= read.length)) continue;
    if (fault.kind == FaultKind::direct_refused && !read.direct) continue;
    const std::uint64_t nth = ++matched_[i];
    if (!chosen && nth >= fault.first && nth - fault.first < fault.count) chosen = fault;
  }
  return chosen;
}

FaultLanes::FaultLanes(std::shared_ptr<FaultPlan> plan, std::uint32_t lanes, RawSink& sink)
    : plan_(std::move(plan)), sink_(sink), lanes_(lanes) {
  held_.reserve(lanes);
  thread_ = start_backend_thread("colibri-faults", [this] { deliver_held(); });
}

FaultLanes::~FaultLanes() {
  inner_.reset();
  {
    const std::lock_guard lock(plan_->mutex_);
    stopping_ = true;
    plan_->changed_.notify_all();
  }
  thread_.join();
}

void FaultLanes::start(std::uint32_t lane, const RawRead& read) noexcept {
  lanes_[lane].read = read;
  lanes_[lane].fault = plan_->next(read);
  inner_->start(lane, read);
}

void FaultLanes::on_read(std::uint32_t lane, const RawResult& result) {
  const RawRead& read = lanes_[lane].read;
  const std::optional<Fault> fault = lanes_[lane].fault;
  RawResult changed = result;
  if (fault) {
    switch (fault->kind) {
      case FaultKind::interrupted: changed = {EINTR, 0}; break;
      case FaultKind::again: changed = {EAGAIN, 0}; break;
      case FaultKind::io_error: changed = {EIO, 0}; break;
      case FaultKind::direct_refused: changed = {EINVAL, 0}; break;
      case FaultKind::short_read: {
        const std::uint64_t half = result.bytes / 2;
        changed.bytes = std::min(result.bytes, std::max(half - half % kReadAlignment, kReadAlignment));
        break;
      }
      case FaultKind::wrong_bytes:
        if (result.bytes != 0) read.destination[result.bytes / 2] ^= std::byte{0x10};
        break;
      case FaultKind::slow: hold({lane, result, Clock::now() + fault->delay}); return;
      case FaultKind::hang: hold({lane, result, std::nullopt}); return;
    }
  }
  sink_.on_read(lane, changed);
}

void FaultLanes::hold(Held held) {
  const std::lock_guard lock(plan_->mutex_);
  if (!held.due) ++plan_->hanging_;
  held_.push_back(held);
  plan_->changed_.notify_all();
}

void FaultLanes::deliver_held() {
  std::unique_lock lock(plan_->mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    auto next = Clock::time_point::max();
    auto ready = held_.end();
    for (auto held = held_.begin(); held != held_.end() && ready == held_.end(); ++held) {
      if (held->due ? *held->due <= now : plan_->released_) {
        ready = held;
      } else if (held->due) {
        next = std::min(next, *held->due);
      }
    }
    if (ready != held_.end()) {
      const Held held = *ready;
      held_.erase(ready);
      if (!held.due) --plan_->hanging_;
      lock.unlock();
      sink_.on_read(held.lane, held.result);
      lock.lock();
    } else if (next == Clock::time_point::max()) {
      plan_->changed_.wait(lock);
    } else {
      plan_->changed_.wait_until(lock, next);
    }
  }
}

}  // namespace colibri
