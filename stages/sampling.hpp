// Sampling: from the logits of one row to a token and its log-probabilities.
//
// Random numbers come from a counter-based generator keyed by the request's seed, with the
// position as the counter: a draw depends on nothing else, not on what ran beside it.
// Candidates are ordered by (logit descending, id ascending) everywhere, so ties go to the
// lower id.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/kernel_table.hpp"

namespace colibri {

// Philox4x32-10 of J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11).
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) noexcept;

// Uniform in [0, 1), 53 bits.
double uniform_draw(std::uint64_t seed, std::uint64_t position) noexcept;

// False when any value is NaN or infinite.
bool all_finite(const float* values, std::size_t n) noexcept;

// The part of log-softmax that all tokens of a row share: logprob = (logit - max) - log(sum of exp).
struct LogNormalizer {
  float max = 0.0F;
  double log_sum = 0.0;

  float logprob(float logit) const noexcept {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(max) - log_sum);
  }
};
LogNormalizer log_normalizer(const kernels::KernelTable& kernels, const float* logits,
                             std::uint32_t vocab) noexcept;

// Memory of one draw; each [vocab].
struct SamplingScratch {
  std::uint32_t* order = nullptr;
  float* weights = nullptr;
};

// The largest logit, lower id first.
std::int32_t argmax(const kernels::KernelTable& kernels, const float* logits, std::uint32_t vocab) noexcept;

// What restricts a draw. top_k 0: no limit; top_p >= 1: no limit.
struct SamplingForm {
  float temperature = 0.0F;  // 0: argmax
  std::uint32_t top_k = 0;
  float top_p = 1.0F;
};

// Softmax of logits / temperature; the top_k best; of these the fewest best whose share of their sum is at
// least top_p (never none); renormalised; then the token at `uniform` of the cumulated probability.
std::int32_t draw_token(const kernels::KernelTable& kernels, const float* logits, std::uint32_t vocab,
                        const SamplingForm& form, double uniform, const SamplingScratch& scratch) noexcept;

// The `count` best tokens with their log-probabilities, best first. `order` is scratch, [vocab].
void best_logprobs(const float* logits, std::uint32_t vocab, const LogNormalizer& normalizer,
                   std::uint32_t count, std::uint32_t* order,
                   std::vector<std::pair<std::int32_t, float>>& best);

}  // namespace colibri
