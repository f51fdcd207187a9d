// Number formats and packing: round trips, rounding and the treatment of odd values.
#include <algorithm>
#include <array>
#include <limits>

#include "kernels/int4_group.hpp"
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
  const PackedShape int4 = packed_shape(WeightFormat::int4_g32, 17, 65);
  EXPECT_EQ(int4.padded_inputs, 128U);
  EXPECT_EQ(int4.panel_bytes, 2U * 576U);
  EXPECT_EQ(packed_shape(WeightFormat::int4_g32, 1024, 2048).bytes * 8, std::uint64_t{1024} * 2048 * 9 / 2);
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
      for (const WeightFormat format :
           {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8_g64, WeightFormat::int4_g32}) {
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
            } else if (format == WeightFormat::int4_g32) {
              const std::uint32_t first = k / 32 * 32;
              std::int8_t q[32];
              const std::uint16_t scale =
                  quantize_int4_group(original + first, std::min(32U, inputs - first), q);
              ASSERT_EQ(row[k], q[k - first] * bf16_to_f32(scale)) << k;
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

// Where the header says that the weight of an output and an input lies.
TEST(PackedMatrix, Int4LiesAsDescribed) {
  for (std::uint32_t k = 0; k < 128; ++k) {
    std::vector<float> weights(16 * 128, 0.0F);
    const std::uint32_t output = k % 16;
    weights[output * 128 + k] = 3.0F;
    const Packed packed(WeightFormat::int4_g32, weights, 16, 128);
    const std::byte* group = packed.bytes.get() + k / 64 * 576 + k / 32 % 2 * 256;
    const std::uint32_t quad = k % 16 / 4;
    const auto byte = std::to_integer<std::uint32_t>(group[quad * 64 + output * 4 + k % 4]);
    // A single value takes the first of the guesses, 6.5 steps, rounded to even.
    EXPECT_EQ(k % 32 < 16 ? byte & 15 : byte >> 4, 8U - 6U) << k;
    EXPECT_EQ(k % 32 < 16 ? byte >> 4 : byte & 15, 8U) << k;
  }
}

double squared_error(const std::vector<float>& values, double scale) {
  double sum = 0;
  for (const float value : values) {
    const double q = std::clamp(std::nearbyint(value / scale), -8.0, 7.0);
    sum += (value - q * scale) * (value - q * scale);
  }
  return sum;
}

// Against an exhaustive search over scales, and the rule with the largest value at -8.
TEST(Int4Group, SquaredErrorIsNearTheBestPossible) {
  Random random(41);
  double ours = 0, best = 0, simple = 0;
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> values = random.normals(32, round % 2 == 0 ? 0.02F : 3e30F);
    const auto larger = [](float a, float b) { return std::abs(a) < std::abs(b); };
    const double largest = *std::max_element(values.begin(), values.end(), larger);
    std::array<std::int8_t, 32> q;
    const double scale = bf16_to_f32(quantize_int4_group(values.data(), 32, q.data()));
    double error = 0;
    for (std::size_t i = 0; i < 32; ++i) {
      ASSERT_EQ(q[i], std::clamp(std::nearbyint(values[i] / scale), -8.0, 7.0));
      error += (values[i] - q[i] * scale) * (values[i] - q[i] * scale);
    }
    double least = error;
    for (double steps = 4; steps < 16; steps += 0.01) {
      for (const double sign : {1.0, -1.0}) {
        least = std::min(least, squared_error(values, sign * largest / steps));
      }
    }
    const double unit = largest * largest;
    ours += error / unit;
    best += least / unit;
    simple += squared_error(values, largest / -8) / unit;
  }
  EXPECT_LE(ours, 1.03 * best);
  EXPECT_LE(ours, 0.92 * simple);
}

// The rule as the header has it, one sum after the other.
std::uint16_t int4_rule(const std::vector<float>& values, std::vector<std::int8_t>& quantized) {
  const auto larger = [](float a, float b) { return std::abs(a) < std::abs(b); };
  const double largest = *std::max_element(values.begin(), values.end(), larger);
  const auto step = [](double value) { return std::nearbyint(std::clamp(value, -8.0, 7.0)); };
  double best_gain = -1, best_scale = 0;
  for (const double steps : {6.5, 7.0, 7.5, 8.0, 8.5}) {
    double value_steps = 0, steps_squared = 0;
    for (const float value : values) {
      const double q = step(value * (-steps / largest));
      value_steps += value * q;
      steps_squared += q * q;
    }
    const double scale = value_steps / steps_squared;
    if (value_steps * scale <= best_gain) continue;
    best_gain = value_steps * scale;
    best_scale = scale;
  }
  const std::uint16_t scale = f32_to_bf16(static_cast<float>(best_scale));
  for (const float value : values) {
    quantized.push_back(static_cast<std::int8_t>(step(value / double{bf16_to_f32(scale)})));
  }
  return scale;
}

TEST(Int4Group, FollowsItsRuleToTheBit) {
  Random random(43);
  for (int round = 0; round < 20000; ++round) {
    std::vector<float> values = random.normals(1 + random.below(32), round % 3 == 0 ? 1e-30F : 3e30F);
    if (round % 5 == 0) std::fill(values.begin() + values.size() / 2, values.end(), -values.front());
    std::vector<std::int8_t> expected, q(values.size());
    const std::uint16_t scale = int4_rule(values, expected);
    ASSERT_EQ(quantize_int4_group(values.data(), static_cast<std::uint32_t>(values.size()), q.data()), scale);
    ASSERT_EQ(q, expected) << round;
  }
}

TEST(Int4Group, OddValues) {
  std::array<std::int8_t, 32> q;
  const auto quantize = [&](std::vector<float> values) {
    q.fill(77);
    return bf16_to_f32(
        quantize_int4_group(values.data(), static_cast<std::uint32_t>(values.size()), q.data()));
  };
  EXPECT_EQ(quantize({0.0F, -0.0F}), 0.0F);
  EXPECT_EQ(q[1], 0);
  EXPECT_EQ(q[2], 77);  // nothing beyond count
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    EXPECT_TRUE(std::isnan(quantize({1.0F, bad})));
    EXPECT_EQ(q[0], 0);
    EXPECT_EQ(q[1], 0);
  }
  // All sixteen steps, with a scale of either sign.
  for (const float sign : {1.0F, -1.0F}) {
    std::vector<float> steps;
    for (int step = -8; step <= 7; ++step) steps.push_back(sign * 0.25F * static_cast<float>(step));
    EXPECT_EQ(quantize(steps), sign * 0.25F);
    for (int step = -8; step <= 7; ++step) EXPECT_EQ(q[static_cast<std::size_t>(step + 8)], step);
  }
  const float largest = std::numeric_limits<float>::max();
  const float scale = quantize({largest, -largest});
  EXPECT_TRUE(std::isfinite(scale));
  EXPECT_NEAR(q[0] * double{scale}, largest, 0.1 * double{largest});
  EXPECT_NEAR(q[1] * double{scale}, -largest, 0.1 * double{largest});
  // Too small for a scale in bf16.
  EXPECT_EQ(quantize({std::numeric_limits<float>::denorm_min(), 0.0F}), 0.0F);
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
