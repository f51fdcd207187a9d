// Routing: from router logits to the picked experts and their weights.
//
// One function driven by a RouterForm covers the published families:
// score -> selection (score + bias, inside the best groups) -> top k -> weights from the
// unbiased score -> renormalise -> scale. Ties go to the lower expert index.
#pragma once

#include <cstdint>

#include "kernels/export.hpp"
#include "kernels/kernel_table.hpp"

namespace colibri::kernels {

enum class RouterScore : std::uint8_t {
  softmax_all = 0,     // softmax over all logits
  softmax_chosen = 1,  // selection by logit, softmax over the chosen ones
  sigmoid = 2,
  sqrt_softplus = 3,  // sqrt(log(1 + exp(l)))
};
enum class RouterGroups : std::uint8_t { none = 0, max = 1, sum_of_two_best = 2 };
enum class RouterRenormalise : std::uint8_t { no = 0, yes = 1, with_epsilon = 2 };

struct RouterForm {
  RouterScore score = RouterScore::softmax_all;
  RouterGroups groups = RouterGroups::none;
  RouterRenormalise renormalise = RouterRenormalise::no;
  float epsilon = 0.0F;  // added to the sum when with_epsilon
  float scale = 1.0F;
  std::uint32_t num_experts = 0;
  std::uint32_t num_experts_per_token = 0;
  std::uint32_t num_groups = 1;        // num_experts % num_groups == 0
  std::uint32_t groups_per_token = 1;  // groups that stay
};

// Bytes of scratch that route_row needs.
COLIBRI_API std::uint64_t route_row_scratch_bytes(const RouterForm& form) noexcept;

// logits [num_experts]; bias [num_experts] or null, added for selection only.
// experts, weights [num_experts_per_token], in ascending expert id.
// Returns false when a logit is NaN or infinite: the outputs are then unspecified. Weights that sum to
// zero are left at zero rather than renormalised to NaN.
COLIBRI_API bool route_row(const KernelTable& table, const RouterForm& form, const float* logits,
                           const float* bias, std::byte* scratch, std::uint32_t* experts,
                           float* weights) noexcept;

}  // namespace colibri::kernels
