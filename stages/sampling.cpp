// Token sampling on plain arrays; no state beyond the caller's scratch.
#include "stages/sampling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

namespace colibri {
namespace {

constexpr std::uint32_t kFirstSorted = 64;  // candidates that a top-p search sorts first
constexpr std::uint32_t kColumns = 512;     // see narrowed

// The order of candidates: strict and total, so that every selection has one outcome.
struct Better {
  const float* logits;
  bool operator()(std::uint32_t a, std::uint32_t b) const noexcept {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
};

// Sorts the best entries of order [begin, n) into order [begin, end).
void sort_best(std::uint32_t* order, std::uint32_t begin, std::uint32_t end, std::uint32_t n,
               Better better) noexcept {
  if (end < n) std::nth_element(order + begin, order + end, order + n, better);
  std::sort(order + begin, order + end, better);
}

// Moves all that can be among the `count` best of [0, vocab) to the front of `order`, which is 0, 1, 2, ...,
// and returns how many they are. The largest of each of some disjoint columns of logits is looked at: the
// count-th best of these is reached by at least `count` logits. For logits in any usual order by hardly more,
// and two passes in their order, of which the second moves few, save a selection over all of them.
std::uint32_t narrowed(std::uint32_t* order, std::uint32_t count, std::uint32_t vocab,
                       const float* logits) noexcept {
  if (count > kColumns / 4 || vocab < 4 * kColumns) return vocab;
  float largest[kColumns];
  std::copy_n(logits, kColumns, largest);
  std::uint32_t first = kColumns;
  for (; first + kColumns <= vocab; first += kColumns) {
    const float* row = logits + first;
    for (std::uint32_t i = 0; i < kColumns; ++i) largest[i] = largest[i] < row[i] ? row[i] : largest[i];
  }
  for (std::uint32_t i = 0; first + i < vocab; ++i) largest[i] = std::max(largest[i], logits[first + i]);
  std::nth_element(largest, largest + (count - 1), largest + kColumns, std::greater<>());
  const float least = largest[count - 1];
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < vocab; ++i) {
    if (logits[i] >= least) std::swap(order[kept++], order[i]);
  }
  return kept;
}

// Sorts the `count` best of all into order [0, count); `order` is 0, 1, 2, ....
void sort_best_of_all(std::uint32_t* order, std::uint32_t count, std::uint32_t vocab,
                      Better better) noexcept {
  sort_best(order, 0, count, narrowed(order, count, vocab, better.logits), better);
}

// How many of the first `count` candidates reach the share `top_p` of their total. Sorts only as many
// as it needs to look at; order [0, sorted) is sorted already.
std::uint32_t nucleus_size(std::uint32_t* order, const float* weights, std::uint32_t count,
                           std::uint32_t sorted, float top_p, Better better) noexcept {
  double total = 0.0;
  // In id order when nothing is sorted yet: `order` is then 0, 1, 2, ...
  for (std::uint32_t i = 0; i < count; ++i) total += static_cast<double>(weights[order[i]]);
  const double wanted = total * static_cast<double>(top_p);
  double reached = 0.0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i == sorted) {
      const std::uint32_t end = std::min(count, std::max(kFirstSorted, sorted * 4));
      if (sorted == 0) {
        sort_best_of_all(order, end, count, better);  // nothing was left out before
      } else {
        sort_best(order, sorted, end, count, better);
      }
      sorted = end;
    }
    reached += static_cast<double>(weights[order[i]]);
    if (reached >= wanted) return i + 1;
  }
  return count;
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) noexcept {
  constexpr std::uint32_t kMultiplier0 = 0xD2511F53U;
  constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57U;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double uniform_draw(std::uint64_t seed, std::uint64_t position) noexcept {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const auto words = philox4x32({low(position), high(position), 0, 0}, {low(seed), high(seed)});
  const std::uint64_t bits = (std::uint64_t{words[1]} << 32 | words[0]) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

bool all_finite(const float* values, std::size_t n) noexcept {
  constexpr std::uint32_t kExponent = 0x7f800000U;
  std::uint32_t bad = 0;  // no early exit: the loop vectorises
  for (std::size_t i = 0; i < n; ++i) {
    bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent);
  }
  return bad == 0;
}

LogNormalizer log_normalizer(const kernels::KernelTable& kernels, const float* logits,
                             std::uint32_t vocab) noexcept {
  const float max = kernels.max_value(logits, vocab);
  return {max, std::log(static_cast<double>(kernels.sum_exp(logits, max, vocab)))};
}

std::int32_t argmax(const kernels::KernelTable& kernels, const float* logits, std::uint32_t vocab) noexcept {
  const float max = kernels.max_value(logits, vocab);
  return static_cast<std::int32_t>(std::find(logits, logits + vocab, max) - logits);
}

std::int32_t draw_token(const kernels::KernelTable& kernels, const float* logits, std::uint32_t vocab,
                        const SamplingForm& form, double uniform, const SamplingScratch& scratch) noexcept {
  if (form.temperature <= 0.0F) return argmax(kernels, logits, vocab);
  const float max = kernels.max_value(logits, vocab);
  // Divided, not multiplied by the inverse: with a tiny temperature the best must stay at 0 / t = 0.
  for (std::uint32_t i = 0; i < vocab; ++i) scratch.weights[i] = (logits[i] - max) / form.temperature;
  kernels.exp_shifted(scratch.weights, 0.0F, vocab, scratch.weights);

  std::iota(scratch.order, scratch.order + vocab, 0U);
  const Better better{logits};
  std::uint32_t count = vocab;
  std::uint32_t sorted = 0;
  if (form.top_k > 0 && form.top_k < vocab) {
    count = sorted = form.top_k;
    sort_best_of_all(scratch.order, count, vocab, better);
  }
  if (form.top_p < 1.0F)
    count = nucleus_size(scratch.order, scratch.weights, count, sorted, form.top_p, better);

  double total = 0.0;
  for (std::uint32_t i = 0; i < count; ++i) total += static_cast<double>(scratch.weights[scratch.order[i]]);
  const double target = uniform * total;
  double reached = 0.0;
  std::uint32_t last = scratch.order[0];
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t token = scratch.order[i];
    if (scratch.weights[token] <= 0.0F) continue;
    last = token;
    reached += static_cast<double>(scratch.weights[token]);
    if (reached > target) break;
  }
  return static_cast<std::int32_t>(last);
}

void best_logprobs(const float* logits, std::uint32_t vocab, const LogNormalizer& normalizer,
                   std::uint32_t count, std::uint32_t* order,
                   std::vector<std::pair<std::int32_t, float>>& best) {
  best.clear();
  if (count == 0) return;
  count = std::min(count, vocab);
  std::iota(order, order + vocab, 0U);
  sort_best_of_all(order, count, vocab, Better{logits});
  best.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    best.emplace_back(static_cast<std::int32_t>(order[i]), normalizer.logprob(logits[order[i]]));
  }
}

}  // namespace colibri
