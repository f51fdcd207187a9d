// DeviceModel: how fast a drive is, as arithmetic on a clock.
//
// Says when a read that begins now would end on a drive with a given bandwidth, latency and
// parallelism. The clock is the caller's: real time, where real reads are held back to look
// like a slower drive (io/read/throttle_lanes.hpp), or virtual time (io/read/virtual_device.hpp).
//
// The law: a read waits `latency`, then for the channel of the drive that is free first, and
// then takes its bytes at a channel's share of the bandwidth. With n reads in flight the drive
// gives bytes_per_second * min(n, channels) / channels. Nothing is saved up while the drive idles.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace colibri {

struct DeviceLaw {
  std::uint64_t bytes_per_second = 0;  // all channels together; 0: reads take their latency only
  std::chrono::nanoseconds latency{0};
  std::uint32_t channels = 1;  // 0 counts as 1
};

// Thread-safe: several backends may share a drive.
class DeviceModel {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit DeviceModel(const DeviceLaw& law);

  // Reads in service go on at the new rate from `now` on.
  void set_bytes_per_second(std::uint64_t rate, Time now);

  // A read of `bytes` begins. The number names it until `finish`; reads are served in the order of
  // these calls.
  std::uint32_t begin(Time now, std::uint64_t bytes);
  // When it ends; another moment after a change of the rate.
  Time end_of(std::uint32_t read) const;
  void finish(std::uint32_t read);

 private:
  mutable std::mutex mutex_;
  DeviceLaw law_;
  std::vector<Time> channels_;       // when each has done what it was given
  std::vector<Time> ends_;           // by read
  std::vector<std::uint32_t> free_;  // reads whose number may be given again
};

// One read on its way through a drive and through a limit on what the program may use of it:
// it ends when the slower of both ends it. Either may be null.
class ModelledRead {
 public:
  void begin(DeviceModel* drive, DeviceModel* limit, DeviceModel::Time now, std::uint64_t bytes);
  DeviceModel::Time end() const;  // when it would end; the beginning when no model holds it
  void finish();

 private:
  struct Part {
    DeviceModel* model = nullptr;
    std::uint32_t read = 0;
  };
  Part parts_[2];
  DeviceModel::Time begin_;
};

}  // namespace colibri
