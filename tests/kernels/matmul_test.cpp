// Matrix products and the quantisation of activations.
#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "tests/kernels/kernel_testing.hpp"

namespace colibri::kernels::testing {
namespace {

constexpr float kUntouched = -12345.0F;

struct Problem {
  WeightFormat format;
  std::uint32_t rows, outputs, inputs;
  std::vector<float> x;  // [rows, inputs]
  Packed packed;
  Quantized quantized;

  Problem(WeightFormat format, std::uint32_t rows, std::uint32_t outputs, std::uint32_t inputs,
          std::uint32_t seed)
      : Problem(format, rows, outputs, inputs, Random(seed).normals(std::size_t{rows} * inputs),
                Random(seed + 1).normals(std::size_t{outputs} * inputs)) {}
  Problem(WeightFormat format, std::uint32_t rows, std::uint32_t outputs, std::uint32_t inputs,
          std::vector<float> x_values, const std::vector<float>& weights)
      : format(format),
        rows(rows),
        outputs(outputs),
        inputs(inputs),
        x(std::move(x_values)),
        packed(format, weights, outputs, inputs),
        quantized(*all_kernel_tables().back(), x, rows, inputs) {}

  MatmulArgs args() const {
    MatmulArgs args;
    args.weights = packed.view;
    args.x = x.data();
    args.x_stride = inputs;
    args.x_quantized = quantized.rows;
    args.rows = rows;
    args.y_stride = outputs;
    args.panel_end = packed.view.panels();
    return args;
  }

  std::vector<float> run(const KernelTable& table) const {
    std::vector<float> y(std::size_t{rows} * outputs, kUntouched);
    MatmulArgs a = args();
    a.y = y.data();
    table.matmul[static_cast<int>(format)](a);
    return y;
  }
};

constexpr WeightFormat kFormats[] = {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8_g64,
                                     WeightFormat::int4_g32};

// Overwrites int4 weights as they lie in memory: every byte of weights, every scale.
void fill_int4(Problem& problem, const std::function<int()>& byte, const std::function<int()>& scale) {
  std::byte* pair = problem.packed.bytes.get();
  const std::byte* end = pair + packed_shape(WeightFormat::int4_g32, problem.outputs, problem.inputs).bytes;
  for (; pair < end; pair += 576) {
    for (int i = 0; i < 512; ++i) pair[i] = static_cast<std::byte>(byte());
    for (int i = 0; i < 32; ++i) {
      const auto bits = static_cast<std::uint16_t>(scale());
      std::memcpy(pair + 512 + i * sizeof(bits), &bits, sizeof(bits));
    }
  }
}

class Matmul : public VariantTest {
 protected:
  void expect_scalar_result(const Problem& problem) {
    ASSERT_TRUE(all_same(problem.run(variant()), problem.run(scalar())))
        << weight_format_name(problem.format) << " rows " << problem.rows << " outputs " << problem.outputs
        << " inputs " << problem.inputs;
  }
};

TEST_P(Matmul, AgreesForEveryOutputTailAndRowCount) {
  for (const WeightFormat format : kFormats) {
    for (std::uint32_t outputs = 1; outputs <= 40; ++outputs) {
      for (std::uint32_t rows = 1; rows <= 20; ++rows)
        expect_scalar_result({format, rows, outputs, 69, rows});
    }
  }
}

TEST_P(Matmul, AgreesForEveryInputTail) {
  for (const WeightFormat format : kFormats) {
    for (std::uint32_t inputs = 1; inputs <= 200; ++inputs) {
      for (const std::uint32_t rows : {1U, 3U, 12U}) expect_scalar_result({format, rows, 33, inputs, inputs});
    }
  }
}

TEST_P(Matmul, AgreesForManyRowsAndPanels) {
  for (const WeightFormat format : kFormats) {
    for (const std::uint32_t rows : {1U, 2U, 5U, 31U, 64U, 257U})
      expect_scalar_result({format, rows, 250, 130, rows});
    expect_scalar_result({format, 14, 100, 4000, 5});  // more than one block of panels
  }
}

TEST_P(Matmul, RowsAndPanelsAloneOrTogetherGiveTheSameBits) {
  for (const WeightFormat format : kFormats) {
    const Problem problem(format, 29, 147, 190, 7);
    const std::vector<float> together = problem.run(variant());
    std::vector<float> apart(together.size(), kUntouched);
    for (std::uint32_t row = 0; row < problem.rows; ++row) {
      for (std::uint32_t panel = 0; panel < problem.packed.view.panels(); ++panel) {
        MatmulArgs a = problem.args();
        a.rows = 1;
        a.row_index = &row;
        a.y = apart.data() + std::size_t{row} * problem.outputs;
        a.panel_begin = panel;
        a.panel_end = panel + 1;
        variant().matmul[static_cast<int>(format)](a);
      }
    }
    EXPECT_TRUE(all_same(together, apart)) << weight_format_name(format);
  }
}

TEST_P(Matmul, GathersRowsFromUnalignedMemoryAndWritesOnlyItsPanels) {
  const std::uint32_t index[] = {4, 0, 4, 2, 6, 1, 1, 5, 3, 6, 0};
  const std::uint32_t rows = std::size(index);
  for (const WeightFormat format : kFormats) {
    const Problem problem(format, 7, 70, 75, 11);
    const std::vector<float> all = problem.run(scalar());
    // One float off the alignment, rows with gaps between them.
    const std::size_t x_stride = problem.inputs + 5;
    std::vector<float> x(1 + problem.rows * x_stride, std::numeric_limits<float>::quiet_NaN());
    for (std::uint32_t r = 0; r < problem.rows; ++r) {
      std::copy_n(problem.x.data() + r * problem.inputs, problem.inputs, x.data() + 1 + r * x_stride);
    }
    const std::size_t y_stride = problem.outputs + 3;
    std::vector<float> y(1 + rows * y_stride, kUntouched);
    MatmulArgs a = problem.args();
    a.x = x.data() + 1;
    a.x_stride = x_stride;
    a.rows = rows;
    a.row_index = index;
    a.y = y.data() + 1;
    a.y_stride = y_stride;
    a.panel_begin = 1;
    a.panel_end = 5;  // the last panel has 6 of 16 outputs
    variant().matmul[static_cast<int>(format)](a);
    EXPECT_EQ(y[0], kUntouched);
    for (std::uint32_t r = 0; r < rows; ++r) {
      for (std::uint32_t n = 0; n < y_stride; ++n) {
        const bool written = n >= 16 && n < problem.outputs;
        const float expected = written ? all[index[r] * problem.outputs + n] : kUntouched;
        ASSERT_TRUE(same(y[1 + r * y_stride + n], expected))
            << weight_format_name(format) << " " << r << " " << n;
      }
    }
  }
}

TEST_P(Matmul, NoPanelsOrNoRowsWriteNothing) {
  for (const WeightFormat format : kFormats) {
    const Problem problem(format, 3, 20, 30, 13);
    MatmulArgs a = problem.args();
    std::vector<float> y(60, kUntouched);
    a.y = y.data();
    a.panel_begin = a.panel_end = 1;
    variant().matmul[static_cast<int>(format)](a);
    a.panel_begin = 0;
    a.rows = 0;
    variant().matmul[static_cast<int>(format)](a);
    EXPECT_EQ(std::count(y.begin(), y.end(), kUntouched), 60);
  }
}

TEST_P(Matmul, Int8AtItsExtremesIsExact) {
  for (const float x_sign : {1.0F, -1.0F}) {
    for (const float w_sign : {1.0F, -1.0F}) {
      const std::uint32_t inputs = 192;
      std::vector<float> x(5 * inputs, 127.0F * x_sign);
      std::vector<float> weights(20 * inputs, 127.0F * w_sign);
      const Problem problem(WeightFormat::int8_g64, 5, 20, inputs, x, weights);
      for (const float value : problem.run(variant())) EXPECT_EQ(value, x_sign * w_sign * 127 * 127 * 192);
    }
  }
}

TEST_P(Matmul, Int8TakesEveryStoredByte) {
  // A container may hold the byte 0 (weight -128), which packing never writes.
  Problem problem(WeightFormat::int8_g64, 3, 16, 64, std::vector<float>(3 * 64, -127.0F),
                  std::vector<float>(16 * 64, 1.0F));
  std::fill_n(problem.packed.bytes.get(), 1024, std::byte{0});
  const float scale = 1.0F / 127.0F;
  for (const float value : problem.run(variant())) EXPECT_EQ(value, std::fma(128.0F * 127 * 64, scale, 0.0F));
}

TEST_P(Matmul, Int4AtItsExtremesIsExact) {
  const std::uint32_t inputs = 192;
  for (const float x_sign : {1.0F, -1.0F}) {
    for (const int weight : {-8, 7}) {
      Problem problem(WeightFormat::int4_g32, 5, 20, inputs, std::vector<float>(5 * inputs, 127.0F * x_sign),
                      std::vector<float>(20 * inputs, 1.0F));
      fill_int4(
          problem, [&] { return weight + 8 + 16 * (weight + 8); }, [] { return f32_to_bf16(1.0F); });
      for (const float value : problem.run(variant())) EXPECT_EQ(value, x_sign * weight * 127 * 192);
    }
  }
}

TEST_P(Matmul, Int4TakesEveryStoredByte) {
  Random random(29);
  for (const std::uint32_t rows : {1U, 4U, 13U}) {
    Problem problem(WeightFormat::int4_g32, rows, 60, 320, 31);
    fill_int4(
        problem, [&] { return random.below(256); }, [&] { return random.below(0x10000); });
    expect_scalar_result(problem);
  }
}

TEST_P(Matmul, OddValuesAgree) {
  const float odd[] = {0.0F,
                       -0.0F,
                       1e-45F,
                       -1e-40F,
                       3e38F,
                       -3e38F,
                       std::numeric_limits<float>::infinity(),
                       -1e-30F,
                       1e-20F,
                       65504.0F,
                       std::numeric_limits<float>::quiet_NaN()};
  Random random(17);
  for (const WeightFormat format : kFormats) {
    for (std::uint32_t round = 0; round < 40; ++round) {
      std::vector<float> x = random.normals(6 * 100, round % 2 == 0 ? 1e-38F : 1e18F);
      std::vector<float> weights = random.normals(24 * 100, round % 3 == 0 ? 1e-30F : 1e19F);
      for (int i = 0; i < 6; ++i) {
        x[random.below(600)] = odd[random.below(std::size(odd))];
        weights[random.below(2400)] = odd[random.below(std::size(odd))];
      }
      expect_scalar_result({format, 6, 24, 100, x, weights});
    }
  }
}

TEST_P(Matmul, NaNAndInfinityReachTheOutput) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const WeightFormat format : kFormats) {
      std::vector<float> x(2 * 80, 1.0F);
      x[80 + 70] = bad;
      const Problem problem(format, 2, 16, 80, x, std::vector<float>(16 * 80, 0.5F));
      const std::vector<float> y = problem.run(variant());
      EXPECT_TRUE(std::isfinite(y[0]));
      EXPECT_FALSE(std::isfinite(y[16]));
    }
  }
}

TEST_P(Matmul, QuantizeRowsAgrees) {
  Random random(19);
  const float odd[] = {0.0F,
                       1e-45F,
                       1e-40F,
                       3e38F,
                       std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (std::uint32_t inputs = 1; inputs <= 200; ++inputs) {
    const float scale = inputs % 3 == 0 ? 1e-43F : inputs % 3 == 1 ? 1.0F : 1e37F;
    std::vector<float> x = random.normals(4 * inputs, scale);
    x[random.below(4 * inputs)] = odd[random.below(std::size(odd))];
    const std::uint64_t groups = 4 * ((inputs + 63) / 64);
    const Quantized expected(scalar(), x, 4, inputs);
    const Bytes bytes = aligned_bytes(quantized_rows_bytes(4, inputs));
    const QuantizedRows rows = quantized_rows_at(bytes.get(), 4, inputs);
    // In two calls, to see that out_row is honoured.
    variant().quantize_rows(x.data() + inputs, inputs, 3, inputs, rows, 1);
    variant().quantize_rows(x.data(), inputs, 1, inputs, rows, 0);
    for (std::uint64_t i = 0; i < groups * 64; ++i)
      ASSERT_EQ(rows.values[i], expected.rows.values[i]) << inputs;
    for (std::uint64_t i = 0; i < groups; ++i) {
      ASSERT_TRUE(same(rows.scales[i], expected.rows.scales[i])) << inputs;
      ASSERT_EQ(rows.offsets[i], expected.rows.offsets[i]) << inputs;
      for (std::uint64_t half = 2 * i; half < 2 * i + 2; ++half) {
        const std::int8_t* values = rows.values + half * 32;
        ASSERT_EQ(rows.half_offsets[half], -8 * std::accumulate(values, values + 32, 0)) << inputs;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, Matmul, every_variant(), variant_name);

// The scalar reference against double precision; the error is normalised by sum |x w|.
TEST(ScalarMatmul, MatchesDouble) {
  for (const WeightFormat format : kFormats) {
    const Problem problem(format, 5, 37, 333, 23);
    const std::vector<float> y = problem.run(*all_kernel_tables().back());
    const std::uint32_t groups = (problem.inputs + 63) / 64;
    std::vector<float> weights(problem.inputs);
    for (std::uint32_t n = 0; n < problem.outputs; ++n) {
      unpack_row(problem.packed.view, n, weights.data());
      for (std::uint32_t r = 0; r < problem.rows; ++r) {
        double sum = 0, magnitude = 0;
        for (std::uint32_t k = 0; k < problem.inputs; ++k) {
          double x = problem.x[r * problem.inputs + k];
          if (has_integer_weights(format)) {
            const std::uint32_t group = r * groups + k / 64;
            x = static_cast<double>(problem.quantized.rows.values[group * 64 + k % 64]) *
                problem.quantized.rows.scales[group];
            EXPECT_LE(std::abs(x - problem.x[r * problem.inputs + k]),
                      problem.quantized.rows.scales[group] * 0.5001);
          }
          sum += x * weights[k];
          magnitude += std::abs(x * weights[k]);
        }
        ASSERT_LE(std::abs(y[r * problem.outputs + n] - sum), 2e-6 * magnitude) << weight_format_name(format);
      }
    }
  }
}

}  // namespace
}  // namespace colibri::kernels::testing
