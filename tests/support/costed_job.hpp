// Jobs in virtual time: the drive is a VirtualDevice, and the stages that compute cost fixed times.
//
// All on one thread, in a seeded order. How long a job takes is the same on every machine, to a tenth of a
// percent (the watch over reads ticks in real time), so that scheduling, hints and orders of start can be
// compared by the percent.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/golden_model.hpp"

namespace colibri::testing {

struct CostedRun {
  std::chrono::nanoseconds wall{0}, compute{0};  // of the virtual clock
  std::uint64_t rate = 0;                        // of the drive, bytes a second
  JobRun job;
  std::uint64_t bytes() const { return job.report.bytes_read; }
  double disk_seconds() const { return static_cast<double>(bytes()) / static_cast<double>(rate); }
  double compute_seconds() const { return static_cast<double>(compute.count()) * 1e-9; }
  double seconds() const { return static_cast<double>(wall.count()) * 1e-9; }
  double over_limit() const { return seconds() / std::max(disk_seconds(), compute_seconds()); }
};

// What each step demands in each layer, written down by one run and known in advance to another: it takes the
// place of guesses, and shows what the best of them could reach.
using Foresight = std::map<std::pair<std::uint64_t, std::uint32_t>, std::set<std::uint32_t>>;
enum class Foreseen : std::uint8_t { no, written_down, used };

// Runs a job with the built-in pipeline; rate: of its drive, bytes a second. channels: reads that the drive
// does at a time, each at an equal share of the rate.
CostedRun run_costed(const std::filesystem::path& container,
                     std::vector<std::pair<std::string, std::string>> settings,
                     const std::vector<Request>& requests, double rate, std::uint32_t channels = 4,
                     Foreseen foreseen = Foreseen::no, Foresight* foresight = nullptr);

// The bandwidth with which reading takes as long as computing, in the run with these settings.
double balanced_rate(const std::filesystem::path& container,
                     const std::vector<std::pair<std::string, std::string>>& settings,
                     const std::vector<Request>& requests, std::uint32_t channels = 4);

}  // namespace colibri::testing
