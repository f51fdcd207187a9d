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

// Keys and values of one kv head, by position.
template <class Element>
class HeadPages {
 public:
  HeadPages(const AttentionArgs& args, std::uint32_t kv_head) noexcept
      : args_(args),
        keys_(std::size_t{kv_head} * kKvPagePositions * args.head_dim),
        values_(keys_ + std::size_t{args.kv_heads} * kKvPagePositions * args.head_dim) {}

  // [head_dim], kKvPagePositions elements apart.
  const Element* key(std::uint32_t position) const noexcept {
    return page(position) + keys_ + position % kKvPagePositions;
  }
  // [head_dim]
  const Element* value(std::uint32_t position) const noexcept {
    return page(position) + values_ + std::size_t{position % kKvPagePositions} * args_.head_dim;
  }

 private:
  const Element* page(std::uint32_t position) const noexcept {
    const std::size_t offset = args_.pages[position / kKvPagePositions] * args_.page_stride;
    return reinterpret_cast<const Element*>(args_.kv_base + offset);
  }

  const AttentionArgs& args_;
  std::size_t keys_, values_;  // where the head's begin in a page, in elements
};

// The running state of one head's softmax; the weighted sum itself is in `out`.
struct Softmax {
  float max = -std::numeric_limits<float>::infinity();
  float sums[kLanes] = {};
};

// The positions first .. last of one block.
template <class Element>
void attend_block(const AttentionArgs& args, const HeadPages<Element>& pages, const float* query,
                  std::uint32_t first, std::uint32_t last, Softmax& state, float* out) noexcept {
  float weights[kAttentionBlock];
  float max = state.max;
  for (std::uint32_t p = first; p <= last; ++p) {
    const Element* key = pages.key(p);
    float score = 0.0F;
    for (std::size_t d = 0; d < args.head_dim; ++d) {
      score = std::fma(query[d], widen(key[d * kKvPagePositions]), score);
    }
    weights[p - first] = score * args.scale;
    if (weights[p - first] > max) max = weights[p - first];
  }
  const float correction = exp_value(state.max - max);
  state.max = max;
  for (float& sum : state.sums) sum *= correction;
  for (std::uint32_t p = first; p <= last; ++p) {
    weights[p - first] = exp_value(weights[p - first] - max);
    state.sums[p % kLanes] += weights[p - first];
  }
  for (std::size_t d = 0; d < args.head_dim; ++d) out[d] *= correction;
  for (std::uint32_t p = first; p <= last; ++p) {
    const Element* value = pages.value(p);
    const float weight = weights[p - first];
    for (std::size_t d = 0; d < args.head_dim; ++d) out[d] = std::fma(weight, widen(value[d]), out[d]);
  }
}

template <class Element>
void attend_head(const AttentionArgs& args, std::uint32_t row, std::uint32_t head) noexcept {
  const HeadPages<Element> pages(args, head / (args.heads / args.kv_heads));
  const std::uint32_t position = args.position + row;
  const std::uint32_t begin = args.window == 0 || position < args.window ? 0 : position - args.window + 1;
  const float* query = args.query + row * args.query_stride + std::size_t{head} * args.head_dim;
  float* out = args.out + row * args.out_stride + std::size_t{head} * args.head_dim;

  Softmax state;
  std::fill_n(out, args.head_dim, 0.0F);
  for (std::uint32_t block = begin / kAttentionBlock; block <= position / kAttentionBlock; ++block) {
    const std::uint32_t start = block * kAttentionBlock;
    attend_block(args, pages, query, std::max(begin, start),
                 std::min(position, start + (kAttentionBlock - 1)), state, out);
  }
  const float sum = sum_lanes(state.sums);
  for (std::uint32_t d = 0; d < args.head_dim; ++d) out[d] /= sum;
}

template <class Element>
void attend(const AttentionArgs& args) noexcept {
  const std::uint32_t group = args.heads / args.kv_heads;
  for (std::uint32_t row = 0; row < args.rows; ++row) {
    for (std::uint32_t head = args.kv_head_begin * group; head < args.kv_head_end * group; ++head) {
      attend_head<Element>(args, row, head);
    }
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
