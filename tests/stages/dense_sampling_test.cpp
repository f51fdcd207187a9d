// Token sampling: the generator against its published vectors, draws against a double
// precision brute force, and the edges of top-k and top-p.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "stages/sampling.hpp"

namespace colibri {
namespace {

const kernels::KernelTable& table() { return *kernels::find_kernel_table("scalar"); }

struct Buffers {
  explicit Buffers(std::size_t n) : order(n), weights(n) {}
  SamplingScratch scratch() { return {order.data(), weights.data()}; }
  std::vector<std::uint32_t> order;
  std::vector<float> weights;
};

std::int32_t draw(const std::vector<float>& logits, const SamplingForm& form, double uniform) {
  Buffers buffers(logits.size());
  return draw_token(table(), logits.data(), static_cast<std::uint32_t>(logits.size()), form, uniform,
                    buffers.scratch());
}

// The known answers that come with the authors' Random123 library, philox4x32 with 10 rounds.
TEST(DenseSampling, PhiloxKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(DenseSampling, UniformDrawsAreUniformAndIndependentOfEachOther) {
  double sum = 0, product = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform_draw(7, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    product += u * uniform_draw(7, static_cast<std::uint64_t>(i) + 1);
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.01);
  EXPECT_NEAR(product / kDraws, 0.25, 0.01);
  EXPECT_NE(uniform_draw(1, 5), uniform_draw(2, 5));
  EXPECT_NE(uniform_draw(1ULL << 40, 5), uniform_draw(0, 5));
}

TEST(DenseSampling, GreedyTiesGoToTheLowerId) {
  EXPECT_EQ(draw({1, 3, 3, 2}, {}, 0.9), 1);
  EXPECT_EQ(draw({-5}, {}, 0.1), 0);
}

// Probabilities by the definition: sort, cut to k, cut to p of what is left, renormalise.
std::vector<double> brute_force(const std::vector<float>& logits, const SamplingForm& form) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  if (form.top_k > 0 && form.top_k < order.size()) order.resize(form.top_k);
  std::vector<double> weights;
  for (const std::size_t id : order) {
    weights.push_back(std::exp((double{logits[id]} - double{logits[order[0]]}) / double{form.temperature}));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (form.top_p < 1.0F) {
    double reached = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      reached += weights[i];
      if (reached >= total * double{form.top_p}) {
        weights.resize(i + 1);
        break;
      }
    }
  }
  const double kept = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> probabilities(logits.size(), 0.0);
  for (std::size_t i = 0; i < weights.size(); ++i) probabilities[order[i]] = weights[i] / kept;
  return probabilities;
}

TEST(DenseSampling, DrawsFollowTheDefinition) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(300);
  for (float& logit : logits) logit = normal(random);
  logits[17] = logits[200] = logits[3];
  for (const SamplingForm& form :
       {SamplingForm{1.0F, 0, 1.0F}, SamplingForm{0.5F, 10, 1.0F}, SamplingForm{1.5F, 0, 0.8F},
        SamplingForm{0.8F, 40, 0.5F}, SamplingForm{1.0F, 1000, 0.99F}, SamplingForm{4.0F, 0, 0.999F}}) {
    SCOPED_TRACE(std::to_string(form.top_k) + " " + std::to_string(form.top_p));
    const std::vector<double> expected = brute_force(logits, form);
    // Evenly spaced uniforms: each token's share of them is its probability, to 1 / count.
    constexpr int kCount = 20000;
    std::vector<double> share(logits.size(), 0.0);
    for (int i = 0; i < kCount; ++i) {
      share[static_cast<std::size_t>(draw(logits, form, (i + 0.5) / kCount))] += 1.0 / kCount;
    }
    for (std::size_t id = 0; id < logits.size(); ++id) EXPECT_NEAR(share[id], expected[id], 2e-4) << id;
  }
}

// Vocabularies that are large enough for a first selection by columns, and logits that make it hard.
TEST(DenseSampling, SelectsFromLargeVocabulariesByTheDefinition) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal(0, 3);
  const std::map<std::string, std::function<float(std::uint32_t)>> kinds = {
      {"random", [&](std::uint32_t) { return normal(random); }},
      {"equal", [](std::uint32_t) { return 1.5F; }},
      {"ascending", [](std::uint32_t id) { return static_cast<float>(id) / 100; }},
      {"descending", [](std::uint32_t id) { return static_cast<float>(id) / -100; }},
      {"all best in one column",
       [&](std::uint32_t id) { return id % 512 == 7 ? 50 - normal(random) : normal(random); }},
      {"few values", [&](std::uint32_t) { return std::round(normal(random)); }},
  };
  for (const std::uint32_t vocab : {2047U, 2048U, 2049U, 4096U, 20011U}) {
    for (const auto& [kind, logit_of] : kinds) {
      SCOPED_TRACE(kind + " " + std::to_string(vocab));
      std::vector<float> logits(vocab);
      for (std::uint32_t id = 0; id < vocab; ++id) logits[id] = logit_of(id);
      std::vector<std::uint32_t> expected(vocab), order(vocab);
      std::iota(expected.begin(), expected.end(), 0U);
      std::stable_sort(expected.begin(), expected.end(),
                       [&](auto a, auto b) { return logits[a] > logits[b]; });
      const LogNormalizer normalizer = log_normalizer(table(), logits.data(), vocab);
      for (const std::uint32_t count : {1U, 2U, 40U, 128U, 129U, 1000U}) {
        std::vector<std::pair<std::int32_t, float>> best;
        best_logprobs(logits.data(), vocab, normalizer, count, order.data(), best);
        ASSERT_EQ(best.size(), count);
        for (std::uint32_t i = 0; i < count; ++i) {
          ASSERT_EQ(static_cast<std::uint32_t>(best[i].first), expected[i]) << count << " " << i;
        }
        for (const SamplingForm& form : {SamplingForm{1.0F, count, 1.0F}, SamplingForm{1.0F, count, 0.7F},
                                         SamplingForm{1.0F, 0, 0.3F}, SamplingForm{1.0F, 0, 0.97F}}) {
          const std::vector<double> probabilities = brute_force(logits, form);
          for (const double uniform : {0.001, 0.37, 0.61, 0.999}) {
            const auto token = static_cast<std::size_t>(draw(logits, form, uniform));
            ASSERT_GT(probabilities[token], 0) << form.top_k << " " << form.top_p;
          }
        }
      }
    }
  }
}

TEST(DenseSampling, EdgesOfTopKAndTopP) {
  const std::vector<float> logits = {0, 2, 1, 2};
  for (const double u : {0.0, 0.5, 0.999999}) {
    EXPECT_EQ(draw(logits, {1.0F, 1, 1.0F}, u), 1) << "top_k 1 keeps the best, lower id first";
    EXPECT_EQ(draw(logits, {1.0F, 0, 0.0F}, u), 1) << "top_p 0 keeps one";
    // Subnormal: its inverse is infinite.
    EXPECT_EQ(draw(logits, {1e-40F, 0, 1.0F}, u), u < 0.5 ? 1 : 3) << "a tiny temperature keeps the best two";
    EXPECT_EQ(draw({3}, {1.0F, 5, 0.5F}, u), 0);
  }
  EXPECT_EQ(draw(logits, {1.0F, 2, 1.0F}, 0.4), 1);
  EXPECT_EQ(draw(logits, {1.0F, 2, 1.0F}, 0.6), 3);
  // Equal logits: a share that one token reaches exactly keeps that one.
  EXPECT_EQ(draw({1, 1, 1, 1}, {1.0F, 0, 0.25F}, 0.99), 0);
  EXPECT_EQ(draw({1, 1, 1, 1}, {1.0F, 0, 0.26F}, 0.99), 1);
  // A huge temperature makes all tokens alike.
  EXPECT_EQ(draw(logits, {1e30F, 0, 1.0F}, 0.6), 2);
}

TEST(DenseSampling, LogprobsAreLogSoftmax) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> logits(1000);
  for (float& logit : logits) logit = normal(random);
  double sum = 0;
  const double max = *std::max_element(logits.begin(), logits.end());
  for (const float logit : logits) sum += std::exp(double{logit} - max);
  const LogNormalizer normalizer = log_normalizer(table(), logits.data(), 1000);
  for (const float logit : logits) EXPECT_NEAR(normalizer.logprob(logit), logit - max - std::log(sum), 1e-5);

  std::vector<std::uint32_t> order(1000);
  std::vector<std::pair<std::int32_t, float>> best;
  best_logprobs(logits.data(), 1000, normalizer, 5, order.data(), best);
  std::vector<float> sorted = logits;
  std::sort(sorted.rbegin(), sorted.rend());
  ASSERT_EQ(best.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(logits[static_cast<std::size_t>(best[i].first)], sorted[i]);
    EXPECT_EQ(best[i].second, normalizer.logprob(sorted[i]));
  }
  best_logprobs(logits.data(), 3, normalizer, 9, order.data(), best);
  EXPECT_EQ(best.size(), 3U) << "no more than the vocabulary";
}

TEST(DenseSampling, FindsValuesThatAreNotFinite) {
  std::vector<float> values(100, 1.0F);
  EXPECT_TRUE(all_finite(values.data(), values.size()));
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    values[63] = bad;
    EXPECT_FALSE(all_finite(values.data(), values.size()));
  }
}

}  // namespace
}  // namespace colibri
