// What the kernel tests share: reproducible values, exact comparison, packed matrices in
// buffers of exactly their size (so that address sanitizer sees any overrun).
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.hpp"

namespace colibri::kernels::testing {

// Equal to the bit, except that one NaN is as good as another (kernel_table.hpp).
inline bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

inline ::testing::AssertionResult all_same(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) {
      return ::testing::AssertionFailure()
             << "element " << i << ": " << std::hexfloat << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  float normal(float scale = 1.0F) { return scale * normal_(engine_); }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(engine_() % n); }
  std::vector<float> normals(std::size_t n, float scale = 1.0F) {
    std::vector<float> values(n);
    for (float& value : values) value = normal(scale);
    return values;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> normal_;
};

struct FreeMemory {
  void operator()(std::byte* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, FreeMemory>;

inline Bytes aligned_bytes(std::uint64_t size) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, size == 0 ? 64 : size) != 0) std::abort();
  return Bytes(static_cast<std::byte*>(memory));
}

// weights [outputs, inputs], packed.
struct Packed {
  Bytes bytes;
  PackedMatrix view;

  Packed(WeightFormat format, const std::vector<float>& weights, std::uint32_t outputs,
         std::uint32_t inputs) {
    const PackedShape shape = packed_shape(format, outputs, inputs);
    bytes = aligned_bytes(shape.bytes);
    for (std::uint32_t panel = 0; panel < shape.panels; ++panel) {
      const std::uint32_t first = panel * kPanelOutputs;
      pack_panel(format, weights.data() + std::size_t{first} * inputs,
                 std::min(kPanelOutputs, outputs - first), inputs, bytes.get() + panel * shape.panel_bytes);
    }
    view = {.format = format, .outputs = outputs, .inputs = inputs, .data = bytes.get()};
  }
};

struct Quantized {
  Bytes bytes;
  QuantizedRows rows;

  Quantized(const KernelTable& table, const std::vector<float>& x, std::uint32_t count, std::uint32_t inputs)
      : bytes(aligned_bytes(quantized_rows_bytes(count, inputs))),
        rows(quantized_rows_at(bytes.get(), count, inputs)) {
    table.quantize_rows(x.data(), inputs, count, inputs, rows, 0);
  }
};

// A test over every variant; skipped by name where this processor lacks it.
class VariantTest : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported()) GTEST_SKIP() << "this processor has no " << GetParam()->name;
  }
  const KernelTable& variant() const { return *GetParam(); }
  static const KernelTable& scalar() { return *all_kernel_tables().back(); }
};

inline auto every_variant() {
  const auto tables = all_kernel_tables();
  return ::testing::ValuesIn(tables.begin(), tables.end());
}

inline std::string variant_name(const ::testing::TestParamInfo<const KernelTable*>& info) {
  return std::string(info.param->name);
}

}  // namespace colibri::kernels::testing
