#include "io/read/device_model.hpp"

#include <algorithm>
#include <cmath>

namespace colibri {
namespace {

using std::chrono::nanoseconds;

// The longest time that a read may take: keeps sums of times far from the end of the clock.
constexpr double kLongestNanoseconds = 1e15;  // 11 days

// Reads in flight at a time without an allocation: several backends with all their lanes.
constexpr std::size_t kExpectedReads = 2048;

nanoseconds time_of(double bytes, double bytes_per_second) {
  return nanoseconds(std::llround(std::min(bytes / bytes_per_second * 1e9, kLongestNanoseconds)));
}

}  // namespace

DeviceModel::DeviceModel(const DeviceLaw& law) : law_(law), channels_(std::max(law.channels, 1U)) {
  ends_.reserve(kExpectedReads);
  free_.reserve(kExpectedReads);
}

void DeviceModel::set_bytes_per_second(std::uint64_t rate, Time now) {
  const std::lock_guard lock(mutex_);
  if (rate == law_.bytes_per_second) return;
  // What is left of each service takes longer or shorter in proportion. Latencies under way are stretched
  // with it, which only a simulation of microseconds could tell.
  const double scale = rate == 0 ? 0 : static_cast<double>(law_.bytes_per_second) / static_cast<double>(rate);
  auto rescale = [&](Time& end) {
    if (law_.bytes_per_second == 0 || end <= now) return;
    const double left = std::min(static_cast<double>((end - now).count()) * scale, kLongestNanoseconds);
    end = now + nanoseconds(std::llround(left));
  };
  for (Time& channel : channels_) rescale(channel);
  for (Time& end : ends_) rescale(end);
  law_.bytes_per_second = rate;
}

std::uint32_t DeviceModel::begin(Time now, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Time end = now + law_.latency;
  if (law_.bytes_per_second != 0) {
    Time& channel = *std::min_element(channels_.begin(), channels_.end());
    end = std::max(end, channel) + time_of(static_cast<double>(bytes) * static_cast<double>(channels_.size()),
                                           static_cast<double>(law_.bytes_per_second));
    channel = end;
  }
  if (free_.empty()) {
    ends_.push_back(end);
    free_.reserve(ends_.size());  // so that finish never allocates
    return static_cast<std::uint32_t>(ends_.size() - 1);
  }
  const std::uint32_t read = free_.back();
  free_.pop_back();
  ends_[read] = end;
  return read;
}

DeviceModel::Time DeviceModel::end_of(std::uint32_t read) const {
  const std::lock_guard lock(mutex_);
  return ends_[read];
}

void DeviceModel::finish(std::uint32_t read) {
  const std::lock_guard lock(mutex_);
  free_.push_back(read);
}

void ModelledRead::begin(DeviceModel* drive, DeviceModel* limit, DeviceModel::Time now, std::uint64_t bytes) {
  begin_ = now;
  parts_[0] = {drive, drive != nullptr ? drive->begin(now, bytes) : 0};
  parts_[1] = {limit, limit != nullptr ? limit->begin(now, bytes) : 0};
}

DeviceModel::Time ModelledRead::end() const {
  DeviceModel::Time end = begin_;
  for (const Part& part : parts_) {
    if (part.model != nullptr) end = std::max(end, part.model->end_of(part.read));
  }
  return end;
}

void ModelledRead::finish() {
  for (Part& part : parts_) {
    if (part.model != nullptr) part.model->finish(part.read);
    part.model = nullptr;
  }
}

}  // namespace colibri
