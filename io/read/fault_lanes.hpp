// FaultLanes: RawLanes that carry out a FaultPlan around other lanes.
//
// Stands between the scheduler and the real lanes and changes results on their way up.
// Results that are held back are delivered by a thread of its own. Internal to io/read.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "io/read/fault_backend.hpp"
#include "io/read/raw_lanes.hpp"

namespace colibri {

class FaultLanes final : public RawLanes, public RawSink {
 public:
  // `sink` must outlive the lanes. Throws std::system_error when no thread can be had.
  FaultLanes(std::shared_ptr<FaultPlan> plan, std::uint32_t lanes, RawSink& sink);
  ~FaultLanes() override;
  void attach(std::unique_ptr<RawLanes> inner) { inner_ = std::move(inner); }

  void start(std::uint32_t lane, const RawRead& read) noexcept override;
  void nudge() noexcept override { inner_->nudge(); }
  std::chrono::steady_clock::time_point now() const noexcept override { return inner_->now(); }
  void drain() override { inner_->drain(); }
  void on_read(std::uint32_t lane, const RawResult& result) override;
  void on_nudge() override { sink_.on_nudge(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Held {
    std::uint32_t lane;
    RawResult result;
    std::optional<Clock::time_point> due;  // none: at the release
  };
  struct LaneState {
    RawRead read;
    std::optional<Fault> fault;
  };

  void hold(Held held);
  void deliver_held();

  std::shared_ptr<FaultPlan> plan_;
  RawSink& sink_;
  std::vector<LaneState> lanes_;
  std::vector<Held> held_;  // guarded by the plan's mutex, as `stopping_`
  bool stopping_ = false;
  std::thread thread_;
  std::unique_ptr<RawLanes> inner_;  // last: its threads end first
};

}  // namespace colibri
