#include "runtime/engine/step_scheduler.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "runtime/engine/actor.hpp"

namespace colibri {

// splitmix64 (Steele, Lea, Flood 2014).
std::uint64_t StepScheduler::random() noexcept {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

void StepScheduler::schedule(Actor& actor, bool) {
  const std::lock_guard lock(mutex_);
  ready_.push_back(&actor);
  scheduled_.notify_one();
}

void StepScheduler::schedule_last(Actor& actor) {
  if (!first_) return schedule(actor, false);
  const std::lock_guard lock(mutex_);
  last_.push_back(&actor);
}

void StepScheduler::parallel(std::size_t tiles, std::size_t, void (*body)(void*, std::size_t), void* object) {
  order_.resize(tiles);
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  for (std::size_t i = tiles; i > 1; --i) std::swap(order_[i - 1], order_[random() % i]);
  for (const std::size_t tile : order_) {
    if (charge_) charge_(running_->name());
    body(object, tile);
  }
}

void StepScheduler::clear() {
  const std::lock_guard lock(mutex_);
  ready_.clear();
  last_.clear();
}

void StepScheduler::run_until(const std::function<bool()>& done) {
  while (!done()) {
    Actor* actor = nullptr;
    {
      std::unique_lock lock(mutex_);
      if (ready_.empty()) std::swap(ready_, last_);
      if (ready_.empty() && idle_) {
        lock.unlock();
        if (idle_()) continue;
        lock.lock();
      }
      if (ready_.empty()) {
        scheduled_.wait_for(lock, std::chrono::milliseconds(10));
        continue;
      }
      std::size_t pick = random() % ready_.size();
      if (first_) {
        const auto first = std::find_if(ready_.begin(), ready_.end(),
                                        [this](const Actor* ready) { return first_(ready->name()); });
        if (first != ready_.end()) pick = static_cast<std::size_t>(first - ready_.begin());
      }
      actor = ready_[pick];
      ready_[pick] = ready_.back();
      ready_.pop_back();
    }
    running_ = actor;
    if (Actor* next = actor->run()) schedule(*next, false);
  }
}

}  // namespace colibri
