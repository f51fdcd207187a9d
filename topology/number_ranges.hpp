// Lists such as "0-3,8" in config files, walked range by range: CPUs, layers.
#pragma once

#include <cstdint>
#include <string_view>

namespace colibri {

struct NumberRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;  // not below first
};

class NumberRanges {
 public:
  enum class Next : std::uint8_t { range, end, wrong };

  explicit NumberRanges(std::string_view list) noexcept : rest_(list) {}
  // range: the next one. end: there is no more. wrong: what follows is no number or range; empty lists are
  // wrong.
  Next next(NumberRange& range) noexcept;

 private:
  std::string_view rest_;
  bool ended_ = false;
};

}  // namespace colibri
