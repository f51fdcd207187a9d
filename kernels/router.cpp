// The table-driven router, see the header.
#include "kernels/router.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/top_k.hpp"

namespace colibri::kernels {
namespace {

// Scratch of one row, laid over the caller's memory.
struct Scratch {
  float* scores;        // [num_experts], what weights come from
  float* selection;     // [num_experts], what is compared
  float* group_scores;  // [num_groups]
  float* best;          // [max(num_experts_per_token, groups_per_token)], descending
  std::uint32_t* ids;   // the same length: ids of `best`
};

std::uint32_t list_length(const RouterForm& form) noexcept {
  return std::max(form.num_experts_per_token, form.groups_per_token);
}

Scratch scratch_at(const RouterForm& form, std::byte* memory) noexcept {
  Scratch scratch;
  scratch.scores = reinterpret_cast<float*>(memory);
  scratch.selection = scratch.scores + form.num_experts;
  scratch.group_scores = scratch.selection + form.num_experts;
  scratch.best = scratch.group_scores + form.num_groups;
  scratch.ids = reinterpret_cast<std::uint32_t*>(scratch.best + list_length(form));
  return scratch;
}

// softplus in double precision and without overflow: log(1 + e^l) = max(l, 0) + log1p(e^-|l|).
float sqrt_softplus(float logit) noexcept {
  const double value = logit;
  return static_cast<float>(std::sqrt(std::max(value, 0.0) + std::log1p(std::exp(-std::abs(value)))));
}

void softmax(const KernelTable& table, std::uint32_t n, float* values) noexcept {
  const float max = table.max_value(values, n);
  const float sum = table.sum_exp(values, max, n);
  table.exp_shifted(values, max, n, values);
  for (std::uint32_t i = 0; i < n; ++i) values[i] /= sum;
}

void compute_scores(const KernelTable& table, const RouterForm& form, const float* logits,
                    float* scores) noexcept {
  const std::uint32_t n = form.num_experts;
  switch (form.score) {
    case RouterScore::softmax_all:
      std::copy_n(logits, n, scores);
      softmax(table, n, scores);
      break;
    case RouterScore::softmax_chosen: std::copy_n(logits, n, scores); break;
    case RouterScore::sigmoid:
      for (std::uint32_t i = 0; i < n; ++i) scores[i] = -logits[i];
      table.exp_shifted(scores, 0.0F, n, scores);
      for (std::uint32_t i = 0; i < n; ++i) scores[i] = 1.0F / (1.0F + scores[i]);
      break;
    case RouterScore::sqrt_softplus: std::transform(logits, logits + n, scores, sqrt_softplus); break;
  }
}

float group_score(RouterGroups kind, const float* selection, std::uint32_t size) noexcept {
  float first = -std::numeric_limits<float>::infinity();
  float second = first;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (selection[i] > first) {
      second = first;
      first = selection[i];
    } else if (selection[i] > second) {
      second = selection[i];
    }
  }
  return kind == RouterGroups::max || size == 1 ? first : first + second;
}

// Experts outside the best groups get a selection value of -inf.
void keep_best_groups(const RouterForm& form, const Scratch& scratch) noexcept {
  if (form.groups == RouterGroups::none || form.num_groups <= 1) return;
  const std::uint32_t size = form.num_experts / form.num_groups;
  for (std::uint32_t g = 0; g < form.num_groups; ++g) {
    scratch.group_scores[g] = group_score(form.groups, scratch.selection + g * size, size);
  }
  const std::uint32_t kept = std::min(form.groups_per_token, form.num_groups);
  top_k(scratch.group_scores, form.num_groups, kept, scratch.best, scratch.ids);
  for (std::uint32_t g = 0; g < form.num_groups; ++g) {
    if (std::find(scratch.ids, scratch.ids + kept, g) != scratch.ids + kept) continue;
    std::fill_n(scratch.selection + g * size, size, -std::numeric_limits<float>::infinity());
  }
}

// weights [num_experts_per_token], ascending expert id: renormalise and scale.
void finish_weights(const RouterForm& form, float* weights) noexcept {
  const std::uint32_t k = form.num_experts_per_token;
  if (form.renormalise != RouterRenormalise::no) {
    float sum = 0.0F;
    for (std::uint32_t i = 0; i < k; ++i) sum += weights[i];
    if (form.renormalise == RouterRenormalise::with_epsilon) sum += form.epsilon;
    if (sum != 0.0F) {
      for (std::uint32_t i = 0; i < k; ++i) weights[i] /= sum;
    }
  }
  for (std::uint32_t i = 0; i < k; ++i) weights[i] *= form.scale;
}

}  // namespace

std::uint64_t route_row_scratch_bytes(const RouterForm& form) noexcept {
  const std::uint64_t floats = std::uint64_t{2} * form.num_experts + form.num_groups + list_length(form);
  return floats * sizeof(float) + list_length(form) * sizeof(std::uint32_t);
}

bool route_row(const KernelTable& table, const RouterForm& form, const float* logits, const float* bias,
               std::byte* scratch_memory, std::uint32_t* experts, float* weights) noexcept {
  const std::uint32_t n = form.num_experts;
  const std::uint32_t k = form.num_experts_per_token;
  if (!std::all_of(logits, logits + n, [](float logit) { return std::isfinite(logit); })) return false;

  const Scratch scratch = scratch_at(form, scratch_memory);
  compute_scores(table, form, logits, scratch.scores);
  for (std::uint32_t i = 0; i < n; ++i) {
    scratch.selection[i] = bias == nullptr ? scratch.scores[i] : scratch.scores[i] + bias[i];
  }
  keep_best_groups(form, scratch);
  top_k(scratch.selection, n, k, scratch.best, scratch.ids);

  std::copy_n(scratch.ids, k, experts);
  std::sort(experts, experts + k);
  for (std::uint32_t i = 0; i < k; ++i) weights[i] = scratch.scores[experts[i]];
  if (form.score == RouterScore::softmax_chosen) softmax(table, k, weights);
  finish_weights(form, weights);
  return true;
}

}  // namespace colibri::kernels
