// Routing against the published forms, written out here in double precision.
#include "kernels/router.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/top_k.hpp"
#include "tests/kernels/kernel_testing.hpp"

namespace colibri::kernels::testing {
namespace {

struct Picks {
  std::vector<std::uint32_t> experts;
  std::vector<double> weights;
};

// The n largest, best first, ties to the lower index.
std::vector<std::uint32_t> largest(const std::vector<double>& values, std::uint32_t n) {
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return values[a] > values[b]; });
  order.resize(n);
  return order;
}

std::vector<double> softmax(std::vector<double> values) {
  const double max = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - max);
  for (double& value : values) value /= sum;
  return values;
}

Picks reference(const RouterForm& form, const std::vector<float>& logits, const float* bias) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (form.score == RouterScore::softmax_all) scores = softmax(scores);
  for (double& score : scores) {
    if (form.score == RouterScore::sigmoid) score = 1 / (1 + std::exp(-score));
    if (form.score == RouterScore::sqrt_softplus) score = std::sqrt(std::log(1 + std::exp(score)));
  }
  std::vector<double> selection = scores;
  for (std::size_t i = 0; bias != nullptr && i < selection.size(); ++i) selection[i] += bias[i];
  if (form.groups != RouterGroups::none) {
    const std::uint32_t size = form.num_experts / form.num_groups;
    std::vector<double> group_scores;
    for (std::uint32_t g = 0; g < form.num_groups; ++g) {
      std::vector<double> members(selection.begin() + g * size, selection.begin() + (g + 1) * size);
      std::sort(members.rbegin(), members.rend());
      group_scores.push_back(form.groups == RouterGroups::max ? members[0] : members[0] + members[1]);
    }
    const std::vector<std::uint32_t> kept = largest(group_scores, form.groups_per_token);
    for (std::uint32_t e = 0; e < form.num_experts; ++e) {
      if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) selection[e] = -1e300;
    }
  }
  Picks picks;
  picks.experts = largest(selection, form.num_experts_per_token);
  std::sort(picks.experts.begin(), picks.experts.end());
  for (const std::uint32_t e : picks.experts) picks.weights.push_back(scores[e]);
  if (form.score == RouterScore::softmax_chosen) picks.weights = softmax(picks.weights);
  double sum = std::accumulate(picks.weights.begin(), picks.weights.end(), 0.0);
  if (form.renormalise == RouterRenormalise::with_epsilon) sum += form.epsilon;
  if (form.renormalise == RouterRenormalise::no) sum = 1;
  for (double& weight : picks.weights) weight = weight / sum * form.scale;
  return picks;
}

struct Routed {
  bool finite = false;
  std::vector<std::uint32_t> experts;
  std::vector<float> weights;
};

Routed route(const KernelTable& table, const RouterForm& form, const std::vector<float>& logits,
             const float* bias) {
  Routed routed;
  routed.experts.resize(form.num_experts_per_token);
  routed.weights.resize(form.num_experts_per_token);
  const Bytes scratch = aligned_bytes(route_row_scratch_bytes(form));
  routed.finite = route_row(table, form, logits.data(), bias, scratch.get(), routed.experts.data(),
                            routed.weights.data());
  return routed;
}

RouterForm form_of(RouterScore score, RouterRenormalise renormalise, std::uint32_t experts,
                   std::uint32_t picked) {
  RouterForm form;
  form.score = score;
  form.renormalise = renormalise;
  form.num_experts = experts;
  form.num_experts_per_token = picked;
  return form;
}

class Router : public VariantTest {
 protected:
  void expect_reference(const RouterForm& form, bool with_bias) {
    Random random(form.num_experts + form.num_experts_per_token);
    for (int round = 0; round < 100; ++round) {
      const std::vector<float> logits = random.normals(form.num_experts, 2.0F);
      const std::vector<float> bias = random.normals(form.num_experts, 0.3F);
      const float* used = with_bias ? bias.data() : nullptr;
      const Picks expected = reference(form, logits, used);
      const Routed routed = route(variant(), form, logits, used);
      ASSERT_TRUE(routed.finite);
      ASSERT_EQ(routed.experts, expected.experts);
      for (std::size_t i = 0; i < expected.weights.size(); ++i) {
        ASSERT_NEAR(routed.weights[i], expected.weights[i], 1e-6 * std::abs(expected.weights[i]) + 1e-9);
      }
      ASSERT_TRUE(all_same(routed.weights, route(scalar(), form, logits, used).weights));
    }
  }
};

TEST_P(Router, SoftmaxOverAll) {
  expect_reference(form_of(RouterScore::softmax_all, RouterRenormalise::no, 60, 4), false);
  expect_reference(form_of(RouterScore::softmax_all, RouterRenormalise::yes, 128, 8), false);
  expect_reference(form_of(RouterScore::softmax_all, RouterRenormalise::yes, 8, 2), true);
  expect_reference(form_of(RouterScore::softmax_all, RouterRenormalise::yes, 5, 5), false);
  expect_reference(form_of(RouterScore::softmax_all, RouterRenormalise::no, 3, 1), false);
}

TEST_P(Router, SoftmaxOverTheChosen) {
  expect_reference(form_of(RouterScore::softmax_chosen, RouterRenormalise::no, 32, 4), false);
  expect_reference(form_of(RouterScore::softmax_chosen, RouterRenormalise::no, 17, 1), false);
}

TEST_P(Router, SigmoidWithBiasAndGroups) {
  RouterForm form = form_of(RouterScore::sigmoid, RouterRenormalise::with_epsilon, 256, 8);
  form.groups = RouterGroups::sum_of_two_best;
  form.num_groups = 8;
  form.groups_per_token = 4;
  form.epsilon = 1e-20F;
  form.scale = 2.5F;
  expect_reference(form, true);
  form.groups_per_token = 1;
  expect_reference(form, true);
  expect_reference(form_of(RouterScore::sigmoid, RouterRenormalise::yes, 40, 6), true);
}

TEST_P(Router, GroupLimitedMaximum) {
  RouterForm form = form_of(RouterScore::softmax_all, RouterRenormalise::no, 160, 6);
  form.groups = RouterGroups::max;
  form.num_groups = 8;
  form.groups_per_token = 3;
  form.scale = 16.0F;
  expect_reference(form, false);
}

TEST_P(Router, SquareRootOfSoftplus) {
  RouterForm form = form_of(RouterScore::sqrt_softplus, RouterRenormalise::yes, 64, 6);
  form.scale = 1.5F;
  expect_reference(form, true);
}

TEST_P(Router, TiesGoToTheLowerIndex) {
  RouterForm form = form_of(RouterScore::softmax_all, RouterRenormalise::yes, 40, 3);
  std::vector<float> logits(40, 0.5F);
  EXPECT_EQ(route(variant(), form, logits, nullptr).experts, (std::vector<std::uint32_t>{0, 1, 2}));
  logits[39] = logits[20] = logits[7] = logits[30] = 1.0F;
  EXPECT_EQ(route(variant(), form, logits, nullptr).experts, (std::vector<std::uint32_t>{7, 20, 30}));
  logits[38] = 2.0F;
  EXPECT_EQ(route(variant(), form, logits, nullptr).experts, (std::vector<std::uint32_t>{7, 20, 38}));
  form.groups = RouterGroups::sum_of_two_best;
  form.num_groups = 4;
  EXPECT_EQ(route(variant(), form, std::vector<float>(40, 1.0F), nullptr).experts,
            (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST_P(Router, RefusesNaNAndInfinityAnywhere) {
  const RouterForm form = form_of(RouterScore::softmax_all, RouterRenormalise::yes, 21, 2);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
    for (std::size_t at = 0; at < 21; ++at) {
      std::vector<float> logits(21, 0.0F);
      logits[at] = bad;
      EXPECT_FALSE(route(variant(), form, logits, nullptr).finite);
    }
  }
}

TEST_P(Router, ExtremeLogitsStayFinite) {
  for (const RouterScore score : {RouterScore::softmax_all, RouterScore::softmax_chosen, RouterScore::sigmoid,
                                  RouterScore::sqrt_softplus}) {
    const RouterForm form = form_of(score, RouterRenormalise::yes, 8, 3);
    for (const std::vector<float>& logits :
         {std::vector<float>(8, -3e38F), std::vector<float>(8, 3e38F),
          std::vector<float>{-200, 200, -200, 3e38F, -3e38F, 0, 1, 2}, std::vector<float>(8, 0.0F)}) {
      const Routed routed = route(variant(), form, logits, nullptr);
      EXPECT_TRUE(routed.finite);
      for (const float weight : routed.weights) EXPECT_TRUE(std::isfinite(weight));
    }
  }
}

TEST_P(Router, AnUnorderedBiasStillPicksDistinctExperts) {
  const RouterForm form = form_of(RouterScore::sigmoid, RouterRenormalise::yes, 9, 4);
  const std::vector<float> bias(9, std::numeric_limits<float>::quiet_NaN());
  const Routed routed = route(variant(), form, std::vector<float>(9, 1.0F), bias.data());
  EXPECT_EQ(routed.experts, (std::vector<std::uint32_t>{0, 1, 2, 3}));
}

// Ties, unordered values, and more than one block of them, against the one for any k.
TEST(TopK, IsTheSameForEveryLength) {
  Random random(3);
  const float infinity = std::numeric_limits<float>::infinity();
  const float odd[] = {0.0F, -0.0F, infinity, -infinity, 1e-45F, std::numeric_limits<float>::quiet_NaN()};
  for (std::uint32_t k = 1; k <= 9; ++k) {
    for (std::uint32_t n = k; n <= 200; ++n) {
      for (int round = 0; round < 8; ++round) {
        std::vector<float> values = random.normals(n);
        if (round % 2 == 1) {  // many are equal
          for (float& value : values) value = static_cast<float>(random.below(4));
        }
        for (int i = 0; i < round / 2; ++i) values[random.below(n)] = odd[random.below(std::size(odd))];
        if (round == 7) std::fill(values.begin() + n / 3, values.end(), -infinity);
        std::vector<float> best(k), expected_best(k);
        std::vector<std::uint32_t> ids(k), expected_ids(k);
        top_k(values.data(), n, k, best.data(), ids.data());
        top_k_of_any_length(values.data(), n, k, expected_best.data(), expected_ids.data());
        ASSERT_EQ(ids, expected_ids) << k << " of " << n << ", round " << round;
        ASSERT_TRUE(all_same(best, expected_best));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, Router, every_variant(), variant_name);

}  // namespace
}  // namespace colibri::kernels::testing
