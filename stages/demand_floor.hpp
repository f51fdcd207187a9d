// DemandFloor: what a job would have to read if the best set of records had stayed in memory throughout.
//
// Known only at its end, from how often each record was demanded: those demanded most are read
// once, all others each time. A policy that changes its mind may do better, one that cannot know the
// future rarely does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace colibri {

class DemandFloor {
 public:
  explicit DemandFloor(std::size_t records = 0) : demands_(records) {}

  void demanded(std::uint32_t record) noexcept { ++demands_[record]; }
  // Reads of the job with `places` for records that stay.
  std::uint64_t reads(std::size_t places) const {
    std::vector<std::uint32_t> most = demands_;
    std::sort(most.begin(), most.end(), std::greater<>());
    std::uint64_t reads = 0;
    for (std::size_t i = 0; i < most.size(); ++i) reads += i < places ? std::min(most[i], 1U) : most[i];
    return reads;
  }

 private:
  std::vector<std::uint32_t> demands_;  // [records]
};

}  // namespace colibri
