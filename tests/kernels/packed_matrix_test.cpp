// Number formats and packing: round trips, rounding and the treatment of odd values.
#include <algorithm>
#include <array>
#include <limits>

#include "kernels/int8_group.hpp"
#include "kernels/rope_angles.hpp"
#include "tests/kernels/kernel_testing.hpp"

namespace colibri::kernels::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(NumberFormat, NamesRoundTrip) {
  for (int i = 0; i < kWeightFormats; ++i) {
    const WeightFormat format = static_cast<WeightFormat>(i);
    WeightFormat parsed = WeightFormat::f32;
    EXPECT_TRUE(parse_weight_format(weight_format_name(format), parsed));
    EXPECT_EQ(parsed, format);
  }
  WeightFormat untouched = WeightFormat::bf16;
  EXPECT_FALSE(parse_weight_format("int4", untouched));
  EXPECT_FALSE(parse_weight_format("", untouched));
  EXPECT_EQ(untouched, WeightFormat::bf16);
}

TEST(NumberFormat, Bf16IsExactBothWaysAndRoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value))));
    } else {
      ASSERT_EQ(f32_to_bf16(value), bits);
    }
  }
  EXPECT_EQ(f32_to_bf16(0x1.01p0F), 0x3f80);    // halfway: to even
  EXPECT_EQ(f32_to_bf16(0x1.03p0F), 0x3f82);    // halfway: to even, up
  EXPECT_EQ(f32_to_bf16(0x1.0102p0F), 0x3f81);  // above halfway
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001U)))));
}

TEST(NumberFormat, Binary16FollowsItsDefinition) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 0x1f);
    const double mantissa = bits & 0x3ff;
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    if (exponent == 31 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(value));
      continue;
    }
    double expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) expected = kInfinity;
    ASSERT_TRUE(same(value, static_cast<float>(sign * expected))) << bits;
  }
}

TEST(PackedMatrix, ShapesAreExactUpToTheLimit) {
  const PackedShape small = packed_shape(WeightFormat::int8_g64, 17, 65);
  EXPECT_EQ(small.panels, 2U);
  EXPECT_EQ(small.padded_inputs, 128U);
  EXPECT_EQ(small.panel_bytes, 2U * 1088U);
  EXPECT_EQ(small.bytes, 4U * 1088U);
  EXPECT_EQ(packed_shape(WeightFormat::bf16, 16, 3).bytes, 96U);
  const std::uint32_t most = 0x7fffffffU;
  const PackedShape large = packed_shape(WeightFormat::f32, most, most);
  EXPECT_EQ(large.panel_bytes, std::uint64_t{most} * 64);
  EXPECT_EQ(large.bytes / large.panel_bytes, large.panels);
}

TEST(PackedMatrix, RowsComeBack) {
  Random random(1);
  for (const std::uint32_t outputs : {1U, 15U, 16U, 17U, 40U}) {
    for (const std::uint32_t inputs : {1U, 63U, 64U, 65U, 200U}) {
      const std::vector<float> weights = random.normals(std::size_t{outputs} * inputs);
      for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8_g64}) {
        const Packed packed(format, weights, outputs, inputs);
        std::vector<float> row(inputs);
        for (std::uint32_t n = 0; n < outputs; ++n) {
          unpack_row(packed.view, n, row.data());
          const float* original = weights.data() + std::size_t{n} * inputs;
          for (std::uint32_t k = 0; k < inputs; ++k) {
            if (format == WeightFormat::f32) {
              ASSERT_EQ(row[k], original[k]);
            } else if (format == WeightFormat::bf16) {
              ASSERT_EQ(row[k], bf16_to_f32(f32_to_bf16(original[k])));
            } else {
              float largest = 0;
              for (std::uint32_t j = k / 64 * 64; j < std::min(inputs, k / 64 * 64 + 64); ++j) {
                largest = std::max(largest, std::abs(original[j]));
              }
              ASSERT_LE(std::abs(row[k] - original[k]), largest / 127 * 0.5001);
            }
          }
        }
      }
    }
  }
}

TEST(Int8Group, OddValues) {
  std::array<std::int8_t, 64> q;
  const auto quantize = [&](std::vector<float> values) {
    q.fill(77);
    return quantize_int8_group(values.data(), static_cast<std::uint32_t>(values.size()), q.data());
  };
  EXPECT_EQ(quantize({0.0F, -0.0F}), 0.0F);
  EXPECT_EQ(q[0], 0);
  EXPECT_EQ(q[2], 77);  // nothing beyond count
  EXPECT_TRUE(std::isnan(quantize({1.0F, kNaN})));
  EXPECT_EQ(q[0], 0);
  EXPECT_TRUE(std::isnan(quantize({-kInfinity, 1.0F})));
  EXPECT_EQ(q[1], 0);
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(quantize({largest, -largest}), largest / 127);
  EXPECT_EQ(q[0], 127);
  EXPECT_EQ(q[1], -127);
  // Halfway cases go to even: scale is 1 here.
  EXPECT_EQ(quantize({127.0F, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F}), 1.0F);
  EXPECT_EQ((std::array<int, 5>{q[1], q[2], q[3], q[4], q[5]}), (std::array<int, 5>{0, 2, 2, 0, -2}));
  // A subnormal scale is too coarse for 127 steps: clamped, never wrapped.
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(quantize({190 * tiny, -190 * tiny}), tiny);
  EXPECT_EQ(q[0], 127);
  EXPECT_EQ(q[1], -127);
  EXPECT_EQ(quantize({tiny}), 0.0F);
  EXPECT_EQ(q[0], 0);
}

TEST(RopeAngles, MatchLongDouble) {
  const std::vector<double> frequencies = {1.0, 0.1, 0.0031622776601683795, 1e-6};
  std::vector<float> cosines(4), sines(4);
  for (const std::uint32_t position : {0U, 1U, 1000U, 131071U, 4000000000U}) {
    rope_angles(frequencies.data(), 4, position, 1.25, cosines.data(), sines.data());
    for (std::size_t i = 0; i < 4; ++i) {
      const long double angle = static_cast<long double>(position) * frequencies[i];
      EXPECT_NEAR(cosines[i], 1.25L * std::cos(angle), 1e-6);
      EXPECT_NEAR(sines[i], 1.25L * std::sin(angle), 1e-6);
    }
  }
}

TEST(KernelTable, ListsBestFirstAndFindsByName) {
  EXPECT_EQ(all_kernel_tables().back()->name, "scalar");
  EXPECT_EQ(find_kernel_table("scalar"), all_kernel_tables().back());
  EXPECT_EQ(find_kernel_table("sse"), nullptr);
  EXPECT_EQ(find_kernel_table(""), nullptr);
  for (const KernelTable* table : all_kernel_tables()) {
    EXPECT_EQ(find_kernel_table(table->name), table->supported() ? table : nullptr);
  }
  EXPECT_TRUE(best_kernel_table().supported());
}

}  // namespace
}  // namespace colibri::kernels::testing
