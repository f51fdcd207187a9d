#include "io/read/virtual_device.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "io/read/read_backend.hpp"
#include "io/read/virtual_lanes.hpp"

namespace colibri {

VirtualDevice::VirtualDevice(const std::vector<DeviceLaw>& drives, VirtualContents contents)
    : contents_(contents) {
  for (const DeviceLaw& law : drives) drives_.push_back({std::make_unique<DeviceModel>(law), {}, 0, {}});
  if (drives_.empty()) drives_.push_back({std::make_unique<DeviceModel>(DeviceLaw{}), {}, 0, {}});
  // Lanes begin reads and nudge without a way to fail.
  flights_.reserve(kMaxReadLanes);
  nudged_.reserve(kMaxReadLanes);
}

std::chrono::nanoseconds VirtualDevice::now() const {
  const std::lock_guard lock(mutex_);
  return now_.time_since_epoch();
}

bool VirtualDevice::advance() { return deliver_next(nullptr, Time::max()); }

void VirtualDevice::pass(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  const Time until = now_ + time;
  lock.unlock();
  while (deliver_next(nullptr, until)) {
  }
  lock.lock();
  now_ = std::max(now_, until);
}

VirtualDevice::Usage VirtualDevice::usage(std::uint32_t drive) const {
  const std::lock_guard lock(mutex_);
  const Drive& one = drives_[drive % drives_.size()];
  Usage usage = one.usage;
  if (one.in_flight > 0) usage.busy += now_ - one.busy_since;
  return usage;
}

void VirtualDevice::begin(VirtualLanes& lanes, std::uint32_t lane, std::uint32_t file, std::uint64_t length,
                          std::chrono::microseconds delay, DeviceModel* limit) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::uint32_t>(file % drives_.size());
  Drive& drive = drives_[index];
  if (drive.in_flight++ == 0) drive.busy_since = now_;
  Flight& flight = flights_.emplace_back(Flight{&lanes, lane, index, length, next_order_++, {}});
  flight.read.begin(drive.model.get(), limit, now_ + delay, length);
}

void VirtualDevice::nudge(VirtualLanes& lanes) {
  const std::lock_guard lock(mutex_);
  if (std::find(nudged_.begin(), nudged_.end(), &lanes) == nudged_.end()) nudged_.push_back(&lanes);
}

void VirtualDevice::leave(VirtualLanes& lanes) {
  const std::lock_guard lock(mutex_);
  std::erase(nudged_, &lanes);
}

bool VirtualDevice::deliver_next(const VirtualLanes* only, Time limit) {
  std::unique_lock lock(mutex_);
  const auto nudged = std::find_if(nudged_.begin(), nudged_.end(), [only](const VirtualLanes* lanes) {
    return only == nullptr || lanes == only;
  });
  if (nudged != nudged_.end()) {
    VirtualLanes& lanes = **nudged;
    nudged_.erase(nudged);
    lock.unlock();
    lanes.on_nudge();
    return true;
  }
  auto next = flights_.end();
  for (auto flight = flights_.begin(); flight != flights_.end(); ++flight) {
    if (only != nullptr && flight->lanes != only) continue;
    if (next == flights_.end() || flight->read.end() < next->read.end() ||
        (flight->read.end() == next->read.end() && flight->order < next->order)) {
      next = flight;
    }
  }
  if (next == flights_.end() || next->read.end() > limit) return false;
  Flight flight = std::move(*next);
  flights_.erase(next);
  now_ = std::max(now_, flight.read.end());
  flight.read.finish();
  Drive& drive = drives_[flight.drive];
  ++drive.usage.reads;
  drive.usage.bytes += flight.length;
  if (--drive.in_flight == 0) drive.usage.busy += now_ - drive.busy_since;
  lock.unlock();
  flight.lanes->finish(flight.lane);
  return true;
}

VirtualLanes::VirtualLanes(std::shared_ptr<VirtualDevice> device, std::shared_ptr<DeviceModel> limit,
                           const ReadFiles& files, std::uint32_t lanes, RawSink& sink)
    : device_(std::move(device)), limit_(std::move(limit)), files_(files), sink_(sink), reads_(lanes) {}

VirtualLanes::~VirtualLanes() { device_->leave(*this); }

void VirtualLanes::start(std::uint32_t lane, const RawRead& read) noexcept {
  reads_[lane] = read;
  device_->begin(*this, lane, read.file, read.length, read.delay, limit_.get());
}

void VirtualLanes::nudge() noexcept { device_->nudge(*this); }

std::chrono::steady_clock::time_point VirtualLanes::now() const noexcept {
  return std::chrono::steady_clock::time_point(device_->now());
}

void VirtualLanes::drain() {
  while (device_->deliver_next(this, VirtualDevice::Time::max())) {
  }
}

void VirtualLanes::finish(std::uint32_t lane) {
  const RawRead& read = reads_[lane];
  RawResult result{0, read.length};
  if (device_->contents() == VirtualContents::files) {
    const ssize_t bytes =
        ::pread(files_.descriptor(read.file), read.destination, read.length, static_cast<off_t>(read.offset));
    result = bytes < 0 ? RawResult{errno, 0} : RawResult{0, static_cast<std::uint64_t>(bytes)};
  }
  sink_.on_read(lane, result);
}

}  // namespace colibri
