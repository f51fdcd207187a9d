// MemoryCursor: lays arrays one after the other over a stage's memory.
//
// The same layout code runs twice: without memory it only measures, which is what a
// kind's memory_bytes function reports; with memory it hands out the arrays. So the plan
// and the use of a stage's memory cannot disagree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernel_table.hpp"

namespace colibri {

class MemoryCursor {
 public:
  MemoryCursor() = default;  // measures: every array is null
  explicit MemoryCursor(std::span<std::byte> memory) : memory_(memory) {}

  // `count` elements on a 64-byte boundary, not initialised; null while measuring.
  template <class T>
  T* take(std::uint64_t count) {
    const std::uint64_t begin = used_;
    used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return memory_.data() == nullptr ? nullptr : reinterpret_cast<T*>(memory_.data() + begin);
  }

  // Room for quantised rows of any width up to `widest_inputs`.
  std::byte* take_quantized(std::uint64_t rows, std::uint32_t widest_inputs) {
    return take<std::byte>(kernels::quantized_rows_bytes(rows, widest_inputs));
  }

  std::uint64_t used() const noexcept { return used_; }
  bool fits() const noexcept { return used_ <= memory_.size(); }

 private:
  static constexpr std::uint64_t kAlignment = 64;
  std::span<std::byte> memory_;
  std::uint64_t used_ = 0;
};

}  // namespace colibri
