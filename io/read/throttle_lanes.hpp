// ThrottleLanes: makes the lanes behind them look like a slower drive, in real time.
//
// Each read is carried out, and its result held back until the DeviceModel would have ended
// it. For benches and tests of overlap on drives that this machine does not have, and for
// leaving bandwidth to other programs. Results held back are delivered by a thread of its own.
// Internal to io/read.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "io/read/device_model.hpp"
#include "io/read/raw_lanes.hpp"

namespace colibri {

// The models that reads pass.
struct ReadPace {
  std::vector<std::shared_ptr<DeviceModel>> drives;  // file i lies on drives[i % size]; none: real speed
  std::shared_ptr<DeviceModel> limit;                // all reads of the backend together; null: none

  DeviceModel* drive_of(std::uint32_t file) const noexcept {
    return drives.empty() ? nullptr : drives[file % drives.size()].get();
  }
};

class ThrottleLanes final : public RawLanes, public RawSink {
 public:
  // `sink` must outlive the lanes. Throws std::system_error when no thread can be had.
  ThrottleLanes(ReadPace pace, std::uint32_t lanes, RawSink& sink);
  ~ThrottleLanes() override;
  void attach(std::unique_ptr<RawLanes> inner) { inner_ = std::move(inner); }

  void start(std::uint32_t lane, const RawRead& read) noexcept override;
  void nudge() noexcept override { inner_->nudge(); }
  void on_read(std::uint32_t lane, const RawResult& result) override;
  void on_nudge() override { sink_.on_nudge(); }

 private:
  struct Held {
    std::uint32_t lane;
    RawResult result;
  };

  void deliver_held();

  const ReadPace pace_;
  RawSink& sink_;
  std::vector<ModelledRead> lanes_;  // an element belongs to its lane while that carries a read
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Held> held_;
  bool stopping_ = false;
  std::thread thread_;
  std::unique_ptr<RawLanes> inner_;  // last: its threads end first
};

}  // namespace colibri
