// PrewarmList: records that earlier jobs used most, to be read while nothing else is.
//
// In the order of their rank at the start; those that came meanwhile, or that the job has found
// better ones for, are passed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "stages/slot_table.hpp"

namespace colibri {

class PrewarmList {
 public:
  explicit PrewarmList(std::vector<std::uint32_t> records = {}) : records_(std::move(records)) {}

  // The next record worth a read; SlotTable::kNone when there is none.
  std::uint32_t next(const SlotTable& table) noexcept {
    while (at_ < records_.size()) {
      const std::uint32_t record = records_[at_++];
      if (table.find(record) == SlotTable::kNone && table.choice().chosen(record)) return record;
    }
    return SlotTable::kNone;
  }

 private:
  std::vector<std::uint32_t> records_;
  std::size_t at_ = 0;
};

}  // namespace colibri
