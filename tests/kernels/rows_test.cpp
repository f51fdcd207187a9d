// Kernels over one row: exponential, norm, activation, rotation, sums.
#include <algorithm>
#include <limits>

#include "tests/kernels/kernel_testing.hpp"

namespace colibri::kernels::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class Rows : public VariantTest {};

// Values of ordinary and of odd kinds, offset by one float so that nothing is aligned.
std::vector<float> mixed(Random& random, std::size_t n, bool odd) {
  const float scale = std::exp(random.normal(2.0F));
  std::vector<float> values = random.normals(n + 1, scale);
  if (odd && n != 0) {
    const float kinds[] = {0.0F,      -0.0F,      1e-45F, -1e-39F, 3e38F,  -3e38F,
                           kInfinity, -kInfinity, kNaN,   88.71F,  -87.31F};
    values[1 + random.below(static_cast<std::uint32_t>(n))] = kinds[random.below(std::size(kinds))];
  }
  return values;
}

TEST_P(Rows, AgreeForEveryLengthAndOddValues) {
  Random random(3);
  const KernelTable& v = variant();
  const KernelTable& s = scalar();
  for (std::uint32_t n = 1; n <= 200; ++n) {
    for (int round = 0; round < 8; ++round) {
      const std::vector<float> a = mixed(random, n, round >= 3);
      const std::vector<float> b = mixed(random, n, round >= 5);
      const float* x = a.data() + 1;
      const float* y = b.data() + 1;
      const auto agree = [&](auto call) {
        std::vector<float> mine = b;
        std::vector<float> reference = b;
        call(v, mine.data() + 1);
        call(s, reference.data() + 1);
        return all_same(mine, reference);
      };
      ASSERT_TRUE(same(v.dot(x, y, n), s.dot(x, y, n))) << n;
      ASSERT_TRUE(same(v.max_value(x, n), s.max_value(x, n))) << n;
      ASSERT_TRUE(same(v.sum_exp(x, 1.5F, n), s.sum_exp(x, 1.5F, n))) << n;
      ASSERT_TRUE(agree([&](const KernelTable& t, float* out) { t.rms_norm(x, y, 1e-6F, n, out); })) << n;
      ASSERT_TRUE(agree([&](const KernelTable& t, float* out) { t.rms_norm(out, x, 1e-6F, n, out); })) << n;
      ASSERT_TRUE(agree([&](const KernelTable& t, float* out) { t.silu_multiply(x, out, n, out); })) << n;
      ASSERT_TRUE(agree([&](const KernelTable& t, float* out) { t.silu_multiply(out, x, n, out); })) << n;
      ASSERT_TRUE(agree([&](const KernelTable& t, float* out) { t.exp_shifted(x, -0.25F, n, out); })) << n;
      ASSERT_TRUE(agree([&](const KernelTable& t, float* out) { t.exp_shifted(out, 2.0F, n, out); })) << n;
      ASSERT_TRUE(agree([&](const KernelTable& t, float* out) { t.scale_add(0.37F, x, n, out); })) << n;
      ASSERT_TRUE(agree([&](const KernelTable& t, float* out) { t.add(x, n, out); })) << n;
      for (const RopePairing pairing : {RopePairing::halves, RopePairing::neighbours}) {
        ASSERT_TRUE(agree([&](const KernelTable& t, float* out) {
          t.rope(out, x, x + n / 4, n / 2, pairing);
        })) << n;
      }
    }
  }
}

TEST_P(Rows, MaximumSeesEveryElementAndKeepsTheSignOfZero) {
  for (std::uint32_t n = 1; n <= 70; ++n) {
    for (std::uint32_t at = 0; at < n; ++at) {
      std::vector<float> x(n, -3.0F);
      x[at] = 2.0F;
      ASSERT_EQ(variant().max_value(x.data(), n), 2.0F);
      x[at] = kNaN;
      ASSERT_TRUE(std::isnan(variant().max_value(x.data(), n)));
      x.assign(n, -0.0F);
      x[at] = 0.0F;
      ASSERT_TRUE(same(variant().max_value(x.data(), n), scalar().max_value(x.data(), n)));
    }
  }
  EXPECT_EQ(variant().max_value(nullptr, 0), -kInfinity);
}

TEST_P(Rows, ExponentialKeepsItsPromises) {
  const auto exp = variant().exp;
  EXPECT_EQ(exp(0.0F), 1.0F);
  EXPECT_EQ(exp(-0.0F), 1.0F);
  EXPECT_EQ(exp(std::nextafter(-87.3F, -100.0F)), 0.0F);
  EXPECT_EQ(exp(std::nextafter(88.7F, 100.0F)), kInfinity);
  EXPECT_EQ(exp(-kInfinity), 0.0F);
  EXPECT_EQ(exp(kInfinity), kInfinity);
  EXPECT_EQ(exp(-3.4e38F), 0.0F);
  EXPECT_EQ(exp(3.4e38F), kInfinity);
  EXPECT_TRUE(std::isnan(exp(kNaN)));
  EXPECT_TRUE(std::isnan(exp(-kNaN)));
  double worst = 0;
  const auto check = [&](float x) {
    const float mine = exp(x);
    const double expected = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(mine - expected) / expected);
    ASSERT_TRUE(same(mine, scalar().exp(x))) << std::hexfloat << x;
  };
  // Steps through all magnitudes of both signs, and evenly through the range.
  for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(87.3F); bits += 1499) {
    check(std::bit_cast<float>(bits));
    check(-std::bit_cast<float>(bits));
  }
  for (double x = -87.3; x <= 88.7; x += 0.000371) {
    if (x >= -87.29) check(static_cast<float>(x));
  }
  check(-87.3F);
  check(88.7F);
  EXPECT_LT(worst, 2e-7);
}

TEST_P(Rows, MatchDoublePrecision) {
  Random random(5);
  for (const std::uint32_t n : {1U, 16U, 77U, 2048U}) {
    const std::vector<float> x = random.normals(n, 3.0F);
    const std::vector<float> w = random.normals(n);
    double squares = 0, product = 0, magnitude = 0, exponentials = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      squares += double{x[i]} * x[i];
      product += double{x[i]} * w[i];
      magnitude += std::abs(double{x[i]} * w[i]);
      exponentials += std::exp(double{x[i]} - 9.0);
    }
    EXPECT_NEAR(variant().dot(x.data(), w.data(), n), product, 1e-5 * magnitude);
    EXPECT_NEAR(variant().sum_exp(x.data(), 9.0F, n), exponentials, 1e-5 * exponentials);
    EXPECT_EQ(variant().max_value(x.data(), n), *std::max_element(x.begin(), x.end()));
    std::vector<float> norm(n), silu(n);
    variant().rms_norm(x.data(), w.data(), 1e-5F, n, norm.data());
    variant().silu_multiply(x.data(), w.data(), n, silu.data());
    for (std::uint32_t i = 0; i < n; ++i) {
      const double expected = x[i] / std::sqrt(squares / n + 1e-5) * w[i];
      EXPECT_NEAR(norm[i], expected, 2e-6 * std::abs(expected));
      const double activated = x[i] / (1 + std::exp(-double{x[i]})) * w[i];
      EXPECT_NEAR(silu[i], activated, 1e-6 * std::abs(activated));
    }
  }
}

TEST_P(Rows, RotationPairsAsNamed) {
  for (const std::uint32_t half : {1U, 4U, 16U, 21U, 64U}) {
    Random random(half);
    const std::vector<float> head = random.normals(2 * half + 3);
    std::vector<float> cosines(half), sines(half);
    for (std::uint32_t i = 0; i < half; ++i) {
      cosines[i] = std::cos(0.1F * static_cast<float>(i + 1));
      sines[i] = std::sin(0.1F * static_cast<float>(i + 1));
    }
    for (const RopePairing pairing : {RopePairing::halves, RopePairing::neighbours}) {
      std::vector<float> rotated = head;
      variant().rope(rotated.data(), cosines.data(), sines.data(), half, pairing);
      for (std::uint32_t i = 0; i < half; ++i) {
        const std::uint32_t first = pairing == RopePairing::halves ? i : 2 * i;
        const std::uint32_t second = pairing == RopePairing::halves ? i + half : 2 * i + 1;
        EXPECT_NEAR(rotated[first], double{head[first]} * cosines[i] - double{head[second]} * sines[i], 1e-6);
        EXPECT_NEAR(rotated[second], double{head[second]} * cosines[i] + double{head[first]} * sines[i],
                    1e-6);
      }
      for (std::uint32_t i = 2 * half; i < head.size(); ++i) EXPECT_EQ(rotated[i], head[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, Rows, every_variant(), variant_name);

}  // namespace
}  // namespace colibri::kernels::testing
