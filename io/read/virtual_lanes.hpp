// VirtualLanes: RawLanes whose reads end when a VirtualDevice says so. Internal to io/read.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "io/read/raw_lanes.hpp"
#include "io/read/read_files.hpp"
#include "io/read/virtual_device.hpp"

namespace colibri {

class VirtualLanes final : public RawLanes {
 public:
  // `limit` may be null. `files` and `sink` must outlive the lanes.
  VirtualLanes(std::shared_ptr<VirtualDevice> device, std::shared_ptr<DeviceModel> limit,
               const ReadFiles& files, std::uint32_t lanes, RawSink& sink);
  ~VirtualLanes() override;

  void start(std::uint32_t lane, const RawRead& read) noexcept override;
  void nudge() noexcept override;
  std::chrono::steady_clock::time_point now() const noexcept override;
  void drain() override;

  // Called by the device, without its lock.
  void finish(std::uint32_t lane);
  void on_nudge() { sink_.on_nudge(); }

 private:
  const std::shared_ptr<VirtualDevice> device_;
  const std::shared_ptr<DeviceModel> limit_;
  const ReadFiles& files_;
  RawSink& sink_;
  std::vector<RawRead> reads_;  // [lanes]
};

}  // namespace colibri
