// A product cut into tiles equals the kernel's own answer for all rows and panels at once.
#include <gtest/gtest.h>

#include <random>

#include "dense_model.hpp"
#include "stages/embed.hpp"
#include "stages/row_tiles.hpp"
#include "tests/support/stage_harness.hpp"

namespace colibri::testing {
namespace {

using kernels::WeightFormat;

TEST(DenseRowTiles, CutsChangeNoBit) {
  constexpr std::uint32_t kRows = 37;
  const kernels::KernelTable& table = *kernels::find_kernel_table("scalar");
  Services services;
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  std::vector<std::uint32_t> picked;
  for (std::uint32_t row = 0; row < kRows; row += 1 + row % 2) picked.push_back(row);
  // Fewer panels than tiles, then more; the last panel is not full.
  for (const auto& [outputs, inputs] : {std::pair{9U, 8000U}, {40U, 3001U}, {1000U, 200U}}) {
    std::vector<float> x(std::size_t{kRows} * inputs), weights(std::size_t{outputs} * inputs);
    for (float& value : x) value = normal(random);
    for (float& value : weights) value = normal(random);
    for (const WeightFormat format :
         {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8_g64, WeightFormat::int4_g32}) {
      const auto shape = kernels::packed_shape(format, outputs, inputs);
      std::vector<std::byte> packed(shape.bytes), quantized(kernels::quantized_rows_bytes(kRows, inputs));
      for (std::uint32_t panel = 0; panel < shape.panels; ++panel) {
        kernels::pack_panel(format, weights.data() + std::size_t{panel} * 16 * inputs,
                            std::min(16U, outputs - panel * 16), inputs,
                            packed.data() + panel * shape.panel_bytes);
      }
      RowsView view{.x = x.data(), .stride = inputs};
      view.quantized = kernels::quantized_rows_at(quantized.data(), kRows, inputs);
      table.quantize_rows(x.data(), inputs, kRows, inputs, view.quantized, 0);
      for (const bool indexed : {false, true}) {
        view.row_index = indexed ? picked.data() : nullptr;
        const auto rows = indexed ? static_cast<std::uint32_t>(picked.size()) : kRows;
        const kernels::PackedMatrix matrix{format, outputs, inputs, packed.data()};
        std::vector<float> expected(std::size_t{rows} * outputs), y(expected.size(), -1.0F);
        table.matmul[static_cast<int>(format)]({.weights = matrix,
                                                .x = x.data(),
                                                .x_stride = inputs,
                                                .x_quantized = view.quantized,
                                                .row_index = view.row_index,
                                                .rows = rows,
                                                .y = expected.data(),
                                                .y_stride = outputs,
                                                .panel_begin = 0,
                                                .panel_end = shape.panels});
        for (const std::uint32_t workers : {1U, 2U, 7U}) {
          HarnessContext context(kEmbedInfo, services, 0, {}, workers, workers);
          project(context, table, matrix, view, rows, y.data(), outputs);
          EXPECT_EQ(y, expected) << kernels::weight_format_name(format) << " " << outputs << " workers "
                                 << workers;
        }
      }
    }
  }
}

TEST(DenseRowTiles, RangesCoverEveryItemOnce) {
  Services services;
  for (const std::uint32_t workers : {1U, 3U}) {
    for (const std::uint32_t count : {0U, 1U, 5U, 1000U}) {
      for (const std::uint64_t work : {std::uint64_t{0}, std::uint64_t{1000}, std::uint64_t{1} << 40}) {
        HarnessContext context(kEmbedInfo, services, 0, {}, workers, 1);
        std::vector<int> seen(count, 0);
        for_ranges(context, count, work, [&](std::uint32_t begin, std::uint32_t end) {
          EXPECT_LT(begin, end);
          for (std::uint32_t i = begin; i < end; ++i) ++seen[i];
        });
        EXPECT_EQ(seen, std::vector<int>(count, 1));
      }
    }
  }
}

}  // namespace
}  // namespace colibri::testing
