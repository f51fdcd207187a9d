// RecordPlaces: where the expert records lie in the container, by the numbers that slots use.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/container/container.hpp"
#include "io/read/read_backend.hpp"
#include "io/status.hpp"

namespace colibri {

class RecordPlaces {
 public:
  RecordPlaces() = default;
  // The container outlives this.
  explicit RecordPlaces(const Container& container);

  // Records are numbered ordinal of the MoE layer * experts + expert.
  std::size_t records() const noexcept;
  std::uint64_t record_bytes() const noexcept { return container_->layout().record_bytes; }
  // A read of the record, whole, into `destination`.
  ReadRequest request(std::uint32_t record, std::byte* destination) const;
  std::string name(std::uint32_t record) const;  // "layer 3, expert 17"
  // Why a read that took `limit` has failed. mirrored: of this file, or of a copy.
  Status overdue(std::uint32_t record, std::chrono::milliseconds limit, bool mirrored) const;

 private:
  ExpertRecord place(std::uint32_t record) const;

  const Container* container_ = nullptr;
  std::uint32_t experts_ = 1;
  std::vector<std::uint32_t> moe_layers_;  // [ordinals] layer index
};

}  // namespace colibri
