// Reference attention over paged keys and values, and the store of one position.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/scalar/lane_order.hpp"
#include "kernels/scalar/scalar_kernels.hpp"

namespace colibri::kernels::scalar {
namespace {

static_assert(kKvPagePositions == kLanes, "a lane is a position of the page");

float widen(float value) noexcept { return value; }
float widen(std::uint16_t value) noexcept { return bf16_to_f32(value); }
void narrow(float value, float& out) noexcept { out = value; }
void narrow(float value, std::uint16_t& out) noexcept { out = f32_to_bf16(value); }

template <class Element>
void store(const KvStoreArgs& args) noexcept {
  Element* keys = reinterpret_cast<Element*>(args.page);  // [kv_heads][head_dim][16]
  const std::size_t channels = std::size_t{args.kv_heads} * args.head_dim;
  for (std::size_t i = 0; i < channels; ++i) narrow(args.key[i], keys[i * kKvPagePositions + args.slot]);
  Element* values = keys + channels * kKvPagePositions;  // [kv_heads][16][head_dim]
  for (std::uint32_t head = 0; head < args.kv_heads; ++head) {
    Element* row = values + (std::size_t{head} * kKvPagePositions + args.slot) * args.head_dim;
    const float* source = args.value + std::size_t{head} * args.head_dim;
    for (std::uint32_t d = 0; d < args.head_dim; ++d) narrow(source[d], row[d]);
  }
}

// The running state of one head's softmax; the weighted sum itself is in `out`.
struct Softmax {
  float max = -std::numeric_limits<float>::infinity();
  float sums[kLanes] = {};
};

// The positions first .. last (inside the page) of one page. keys [head_dim][16], values [16][head_dim].
template <class Element>
void attend_page(const AttentionArgs& args, const Element* keys, const Element* values, const float* query,
                 std::uint32_t first, std::uint32_t last, Softmax& state, float* out) noexcept {
  float weights[kLanes];
  float max = state.max;
  for (std::uint32_t p = first; p <= last; ++p) {
    float score = 0.0F;
    for (std::uint32_t d = 0; d < args.head_dim; ++d) {
      score = std::fma(query[d], widen(keys[std::size_t{d} * kKvPagePositions + p]), score);
    }
    weights[p] = score * args.scale;
    if (weights[p] > max) max = weights[p];
  }
  const float correction = exp_value(state.max - max);
  state.max = max;
  for (std::uint32_t p = 0; p < kLanes; ++p) {
    if (p < first || p > last) {
      state.sums[p] *= correction;
      continue;
    }
    weights[p] = exp_value(weights[p] - max);
    state.sums[p] = std::fma(state.sums[p], correction, weights[p]);
  }
  for (std::uint32_t d = 0; d < args.head_dim; ++d) {
    float sum = out[d] * correction;
    for (std::uint32_t p = first; p <= last; ++p) {
      sum = std::fma(weights[p], widen(values[std::size_t{p} * args.head_dim + d]), sum);
    }
    out[d] = sum;
  }
}

template <class Element>
void attend_head(const AttentionArgs& args, std::uint32_t head) noexcept {
  const std::uint32_t kv_head = head / (args.heads / args.kv_heads);
  const std::size_t head_elements = std::size_t{kKvPagePositions} * args.head_dim;  // of one kv head
  const std::uint32_t begin =
      args.window == 0 || args.position < args.window ? 0 : args.position - args.window + 1;
  const float* query = args.query + std::size_t{head} * args.head_dim;
  float* out = args.out + std::size_t{head} * args.head_dim;

  Softmax state;
  std::fill_n(out, args.head_dim, 0.0F);
  for (std::uint32_t page = begin / kKvPagePositions; page <= args.position / kKvPagePositions; ++page) {
    const std::uint32_t start = page * kKvPagePositions;
    const std::uint32_t first = std::max(begin, start) - start;
    const std::uint32_t last = std::min(args.position - start, kKvPagePositions - 1);
    const std::byte* base = args.kv_base + args.pages[page] * args.page_stride;
    const Element* keys = reinterpret_cast<const Element*>(base) + kv_head * head_elements;
    const Element* values = keys + args.kv_heads * head_elements;
    attend_page(args, keys, values, query, first, last, state, out);
  }
  const float sum = sum_lanes(state.sums);
  for (std::uint32_t d = 0; d < args.head_dim; ++d) out[d] /= sum;
}

template <class Element>
void attend(const AttentionArgs& args) noexcept {
  const std::uint32_t group = args.heads / args.kv_heads;
  for (std::uint32_t head = args.kv_head_begin * group; head < args.kv_head_end * group; ++head) {
    attend_head<Element>(args, head);
  }
}

}  // namespace

void kv_store(const KvStoreArgs& args) noexcept {
  args.format == KvFormat::f32 ? store<float>(args) : store<std::uint16_t>(args);
}

void attention(const AttentionArgs& args) noexcept {
  args.format == KvFormat::f32 ? attend<float>(args) : attend<std::uint16_t>(args);
}

}  // namespace colibri::kernels::scalar
