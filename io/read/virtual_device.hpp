// VirtualDevice: drives on a clock that a test moves, so that what reads cost is exact.
//
// Given to open_read_backend in its options. Queue, splitting and retries are those of real
// reads; only the end of each read comes from a DeviceModel in virtual time, and is delivered
// on the thread that moves the clock. With a scheduler of one thread (runtime/engine/step_scheduler)
// that moves it when nothing else can run, a whole job has an exact duration.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "io/read/device_model.hpp"

namespace colibri {

class VirtualLanes;

enum class VirtualContents : std::uint8_t {
  files,      // what the files hold, read when a read ends, checksums compared
  untouched,  // nothing is read or checked: destinations keep what they hold
};

// Thread-safe. Shared by a test and any number of backends; outlives neither.
class VirtualDevice {
 public:
  using Time = DeviceModel::Time;  // of the virtual clock, which begins at 0

  // File i of a backend lies on drive i modulo their number; at least one drive.
  explicit VirtualDevice(const std::vector<DeviceLaw>& drives,
                         VirtualContents contents = VirtualContents::files);

  VirtualContents contents() const noexcept { return contents_; }
  // The model of a drive, to change its rate.
  DeviceModel& drive(std::uint32_t index) noexcept { return *drives_[index % drives_.size()].model; }

  std::chrono::nanoseconds now() const;
  // Moves the clock to the next moment at which a read ends, and delivers it. False: none is in flight.
  bool advance();
  // Time that something else takes: delivers what ends meanwhile, each read at its moment.
  void pass(std::chrono::nanoseconds time);

  // What a drive has done so far.
  struct Usage {
    std::uint64_t reads = 0;           // that ended
    std::uint64_t bytes = 0;           // asked for by them
    std::chrono::nanoseconds busy{0};  // with at least one read in flight
  };
  Usage usage(std::uint32_t drive) const;

 private:
  friend class VirtualLanes;
  struct Drive {
    std::unique_ptr<DeviceModel> model;
    Usage usage;
    std::uint32_t in_flight = 0;
    Time busy_since;
  };
  struct Flight {
    VirtualLanes* lanes;
    std::uint32_t lane;
    std::uint32_t drive;
    std::uint64_t length;
    std::uint64_t order;  // of the beginnings: reads that end at one moment are delivered in it
    ModelledRead read;
  };

  void begin(VirtualLanes& lanes, std::uint32_t lane, std::uint32_t file, std::uint64_t length,
             std::chrono::microseconds delay, DeviceModel* limit);
  void nudge(VirtualLanes& lanes);
  void leave(VirtualLanes& lanes);
  // Delivers one thing that is due until `limit`, of these lanes or (null) of any; false: there is none.
  bool deliver_next(const VirtualLanes* only, Time limit);

  const VirtualContents contents_;
  mutable std::mutex mutex_;
  std::vector<Drive> drives_;
  std::vector<Flight> flights_;
  std::vector<VirtualLanes*> nudged_;
  std::uint64_t next_order_ = 0;
  Time now_{};
};

}  // namespace colibri
