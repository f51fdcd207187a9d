// Which experts a stage has, as the parameter `experts` says it.
//
// Several stages of one kind (a fetch for each drive, a compute for each NUMA node) share out
// the experts of all layers by their ids: "7", "0-31", "32-" (to the last), "0/2" (ids that
// leave 0 when divided by 2), lists of these, or "all". There is no other notion of a part.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "io/status.hpp"

namespace colibri {

// Ids are below this: no model has more experts in a layer.
inline constexpr std::uint32_t kExpertIdLimit = 4096;

class ExpertPartition {
 public:
  ExpertPartition() = default;  // all
  // The error is "what is wrong; expected ...", without a place. An id may be named once.
  static Result<ExpertPartition> parse(std::string_view text);

  bool all() const noexcept { return items_.empty(); }
  bool contains(std::uint32_t expert) const noexcept;
  // The largest id that the text speaks of: up to it, gaps between stages are no accident of the model's
  // size.
  std::uint32_t largest_named() const noexcept;
  std::string text() const;  // parses to the same

 private:
  static constexpr std::uint32_t kNoEnd = std::numeric_limits<std::uint32_t>::max();
  // Ids first, first + step, ... up to last.
  struct Item {
    std::uint32_t first = 0, last = 0, step = 1;
  };
  static Result<Item> parse_item(std::string_view text);

  std::vector<Item> items_;  // empty: all
};

}  // namespace colibri
