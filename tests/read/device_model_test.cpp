// The law of a drive: against sums done by hand, and against a simulation in small steps.
#include "io/read/device_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace colibri {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;
using Time = DeviceModel::Time;

constexpr std::uint64_t kGigabyte = 1'000'000'000;  // a second; one byte a nanosecond

Time at(std::int64_t ns) { return Time(nanoseconds(ns)); }
std::int64_t ns(Time time) { return nanoseconds(time.time_since_epoch()).count(); }

TEST(DeviceModel, ReadsOfOneChannelFollowEachOther) {
  DeviceModel drive({.bytes_per_second = kGigabyte});
  EXPECT_EQ(ns(drive.end_of(drive.begin(at(0), 4096))), 4096);
  EXPECT_EQ(ns(drive.end_of(drive.begin(at(0), 4096))), 8192);
  EXPECT_EQ(ns(drive.end_of(drive.begin(at(5000), 1000))), 9192);
  // Time in which the drive had nothing to do is lost.
  EXPECT_EQ(ns(drive.end_of(drive.begin(at(20'000), 1000))), 21'000);
}

TEST(DeviceModel, LatenciesOfReadsInFlightOverlap) {
  DeviceModel drive({.bytes_per_second = kGigabyte, .latency = microseconds(100)});
  EXPECT_EQ(ns(drive.end_of(drive.begin(at(0), 4096))), 104'096);
  EXPECT_EQ(ns(drive.end_of(drive.begin(at(0), 4096))), 108'192);
  EXPECT_EQ(ns(drive.end_of(drive.begin(at(108'192), 4096))), 212'288);
}

TEST(DeviceModel, FewReadsGetTheirShareOfTheChannels) {
  // 4 channels of 0.25 GB/s: n reads of equal size in flight get n / 4 of the bandwidth.
  for (std::uint32_t reads = 1; reads <= 8; ++reads) {
    DeviceModel drive({.bytes_per_second = kGigabyte, .channels = 4});
    std::int64_t end = 0;
    for (std::uint32_t i = 0; i < reads; ++i) {
      end = std::max(end, ns(drive.end_of(drive.begin(at(0), 1000))));
    }
    EXPECT_EQ(end, reads <= 4 ? 4000 : 8000) << reads;
  }
}

TEST(DeviceModel, WithoutABandwidthReadsTakeTheirLatency) {
  DeviceModel drive({.latency = microseconds(7)});
  EXPECT_EQ(ns(drive.end_of(drive.begin(at(5), UINT64_MAX))), 7005);
  EXPECT_EQ(ns(drive.end_of(drive.begin(at(5), 4096))), 7005);
}

TEST(DeviceModel, AChangeOfTheRateHoldsForReadsInService) {
  DeviceModel drive({.bytes_per_second = kGigabyte});
  const std::uint32_t first = drive.begin(at(0), 10'000);
  const std::uint32_t second = drive.begin(at(0), 10'000);
  drive.set_bytes_per_second(kGigabyte / 2, at(4000));  // 6,000 and 16,000 bytes are left
  EXPECT_EQ(ns(drive.end_of(first)), 4000 + 12'000);
  EXPECT_EQ(ns(drive.end_of(second)), 4000 + 32'000);
  EXPECT_EQ(ns(drive.end_of(drive.begin(at(4000), 1000))), 36'000 + 2000);
  drive.set_bytes_per_second(0, at(10'000));  // no limit: at once
  EXPECT_EQ(ns(drive.end_of(second)), 10'000);
  EXPECT_EQ(ns(drive.end_of(drive.begin(at(10'000), 1000))), 10'000);
}

TEST(DeviceModel, NumbersOfFinishedReadsAreGivenAgain) {
  DeviceModel drive({.bytes_per_second = kGigabyte});
  const std::uint32_t first = drive.begin(at(0), 1);
  drive.finish(first);
  EXPECT_EQ(drive.begin(at(0), 1), first);
}

TEST(DeviceModel, ExtremeValuesStayOnTheClock) {
  DeviceModel drive({.bytes_per_second = 1, .channels = 256});
  EXPECT_GT(ns(drive.end_of(drive.begin(at(0), UINT64_MAX))), 0);
  DeviceModel none({.bytes_per_second = kGigabyte, .channels = 0});  // as one
  EXPECT_EQ(ns(none.end_of(none.begin(at(0), 10))), 10);
}

TEST(DeviceModel, ALimitAndADriveTheSlowerCounts) {
  DeviceModel drive({.bytes_per_second = kGigabyte});
  DeviceModel limit({.bytes_per_second = kGigabyte / 4});
  ModelledRead first, second, alone;
  first.begin(&drive, &limit, at(0), 1000);
  second.begin(&drive, nullptr, at(0), 9000);
  alone.begin(nullptr, nullptr, at(77), 9000);
  EXPECT_EQ(ns(first.end()), 4000);
  EXPECT_EQ(ns(second.end()), 10'000);
  EXPECT_EQ(ns(alone.end()), 77);
}

// A drive with channels that each move one byte a tick; reads wait in one line.
std::vector<std::int64_t> simulate(std::uint32_t channels, std::int64_t latency,
                                   const std::vector<std::pair<std::int64_t, std::int64_t>>& arrivals) {
  struct Channel {
    std::size_t read = 0;
    std::int64_t left = 0;
  };
  std::vector<Channel> busy(channels);
  std::deque<std::size_t> line;
  std::vector<std::int64_t> ends(arrivals.size(), -1);
  std::size_t next = 0, ended = 0;
  for (std::int64_t tick = 0; ended < arrivals.size(); ++tick) {
    while (next < arrivals.size() && arrivals[next].first <= tick) line.push_back(next++);
    for (Channel& channel : busy) {
      if (channel.left == 0 && !line.empty() && arrivals[line.front()].first + latency <= tick) {
        channel = {line.front(), arrivals[line.front()].second};
        line.pop_front();
      }
    }
    for (Channel& channel : busy) {
      if (channel.left > 0 && --channel.left == 0) {
        ends[channel.read] = tick + 1;
        ++ended;
      }
    }
  }
  return ends;
}

TEST(DeviceModel, AgreesWithASimulationInSmallSteps) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t channels = 1 + random() % 6;
    const std::int64_t latency = random() % 3 == 0 ? 0 : random() % 90;
    std::vector<std::pair<std::int64_t, std::int64_t>> arrivals;
    std::int64_t now = 0;
    for (int i = 0; i < 60; ++i) {
      now += random() % 4 == 0 ? random() % 200 : 0;
      arrivals.emplace_back(now, 1 + random() % 60);
    }
    DeviceModel drive(
        {.bytes_per_second = kGigabyte * channels, .latency = nanoseconds(latency), .channels = channels});
    const std::vector<std::int64_t> expected = simulate(channels, latency, arrivals);
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      const std::uint32_t read = drive.begin(at(arrivals[i].first), arrivals[i].second);
      ASSERT_EQ(ns(drive.end_of(read)), expected[i]) << "round " << round << ", read " << i;
    }
  }
}

}  // namespace
}  // namespace colibri
