// The list of variants, best first, and the layout of quantised rows.
#include "kernels/kernel_table.hpp"

#include <array>

#include "kernels/scalar/scalar_kernels.hpp"
#if defined(COLIBRI_KERNELS_X86)
#include "kernels/avx2/avx2_kernels.hpp"
#include "kernels/avx512/avx512_kernels.hpp"
#endif

namespace colibri::kernels {
namespace {

#if defined(COLIBRI_KERNELS_X86)
constexpr std::array<const KernelTable*, 3> kTables = {&avx512::kTable, &avx2::kTable, &scalar::kTable};
#else
constexpr std::array<const KernelTable*, 1> kTables = {&scalar::kTable};
#endif

constexpr std::uint64_t kAlignment = 64;

constexpr std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr std::uint64_t groups_of(std::uint32_t inputs) noexcept {
  return (std::uint64_t{inputs} + kInt8Group - 1) / kInt8Group;
}

}  // namespace

std::uint64_t quantized_rows_bytes(std::uint64_t rows, std::uint32_t inputs) noexcept {
  const std::uint64_t groups = rows * groups_of(inputs);
  return groups * kInt8Group + aligned(groups * sizeof(float)) + aligned(groups * sizeof(std::int32_t)) +
         aligned(2 * groups * sizeof(std::int32_t));
}

QuantizedRows quantized_rows_at(std::byte* memory, std::uint64_t rows, std::uint32_t inputs) noexcept {
  const std::uint64_t groups = rows * groups_of(inputs);
  std::byte* scales = memory + groups * kInt8Group;
  std::byte* offsets = scales + aligned(groups * sizeof(float));
  QuantizedRows out;
  out.values = reinterpret_cast<std::int8_t*>(memory);
  out.scales = reinterpret_cast<float*>(scales);
  out.offsets = reinterpret_cast<std::int32_t*>(offsets);
  out.half_offsets = reinterpret_cast<std::int32_t*>(offsets + aligned(groups * sizeof(std::int32_t)));
  return out;
}

QuantizedRows quantized_rows_from(const QuantizedRows& all, std::uint64_t first,
                                  std::uint32_t inputs) noexcept {
  if (all.values == nullptr) return all;
  const std::uint64_t groups = first * groups_of(inputs);
  return {all.values + groups * kInt8Group, all.scales + groups, all.offsets + groups,
          all.half_offsets + 2 * groups};
}

std::span<const KernelTable* const> all_kernel_tables() noexcept { return kTables; }

const KernelTable* find_kernel_table(std::string_view name) noexcept {
  for (const KernelTable* table : kTables) {
    if (table->name == name) return table->supported() ? table : nullptr;
  }
  return nullptr;
}

const KernelTable& best_kernel_table() noexcept {
  for (const KernelTable* table : kTables) {
    if (table->supported()) return *table;
  }
  return scalar::kTable;
}

}  // namespace colibri::kernels
