// The table of compute kernels: one set of functions per instruction set.
//
// Contract shared by every variant: for each output element there is one order of
// accumulation, fixed by this header and independent of the number of rows, the range of
// panels, tiling and alignment. All variants follow the same order with fused
// multiply-adds, so scalar, AVX2 and AVX-512 agree to the bit; the scalar one is the reference.
// "Lane order" below means: element i goes to accumulator i % 16, in ascending i; the 16
// accumulators are then added in ascending order, starting from accumulator 0.
// (To the bit, except that the sign and payload of a NaN are not fixed.)
//
// Kernels never fail and never allocate; callers pass checked sizes. Thread-safe: calls on
// disjoint outputs may run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/export.hpp"
#include "kernels/number_format.hpp"
#include "kernels/packed_matrix.hpp"

namespace colibri::kernels {

// Rows that were quantised for integer weights: q = round_to_even(x / scale), scale = max|x| / 127
// per row and group of 64 inputs (0 when all are 0; then q is 0). A group that holds a NaN or an
// infinity has q = 0 and scale NaN, so every output that uses it is NaN.
struct QuantizedRows {
  std::int8_t* values = nullptr;    // [rows, padded_inputs], the padding is 0
  float* scales = nullptr;          // [rows, padded_inputs / 64]
  std::int32_t* offsets = nullptr;  // [rows, padded_inputs / 64]: -128 * the sum of the group's values, which
                                    // undoes the + 128 of packed int8 weights in an unsigned dot product
  std::int32_t* half_offsets = nullptr;  // [rows, padded_inputs / 32]: -8 * the sum of each half of a group,
                                         // for the + 8 of int4 weights
};
// Bytes needed for `rows` rows: values first, then scales and both offsets (64-byte aligned parts).
COLIBRI_API std::uint64_t quantized_rows_bytes(std::uint64_t rows, std::uint32_t inputs) noexcept;
// Lays QuantizedRows over `memory` (64-byte aligned, quantized_rows_bytes).
COLIBRI_API QuantizedRows quantized_rows_at(std::byte* memory, std::uint64_t rows,
                                            std::uint32_t inputs) noexcept;
// The same rows from row `first` on; none of none.
COLIBRI_API QuantizedRows quantized_rows_from(const QuantizedRows& all, std::uint64_t first,
                                              std::uint32_t inputs) noexcept;

// y[r, n] = sum over k ascending of x[row(r), k] * W[n, k], with row(r) = row_index ? row_index[r] : r.
// f32, bf16: acc = fma(x, w, acc) from acc = +0. int8: per group ascending, exact integer dot product s,
// then acc = fma(float(s), x_scale * w_scale, acc). int4: per 64 inputs ascending, exact integer dot products
// s0 and s1 of its two groups of 32, then t = fma(float(s1), w1_scale, float(s0) * w0_scale) and
// acc = fma(t, x_scale, acc): one scale of activations serves both.
struct MatmulArgs {
  PackedMatrix weights;
  const float* x = nullptr;                  // [*, x_stride], used for f32 and bf16 weights
  std::size_t x_stride = 0;                  // in elements
  QuantizedRows x_quantized;                 // used for integer weights; rows are padded_inputs apart
  const std::uint32_t* row_index = nullptr;  // [rows] or null
  std::uint32_t rows = 0;
  float* y = nullptr;        // [rows, y_stride]; only columns of the given panels are written,
  std::size_t y_stride = 0;  // never a column >= outputs
  std::uint32_t panel_begin = 0;
  std::uint32_t panel_end = 0;
};

enum class KvFormat : std::uint8_t { f32 = 0, bf16 = 1 };
inline constexpr std::uint32_t kKvPagePositions = 16;

// Keys and values of one layer in pages of 16 positions. Inside a page of a layer:
//   K [kv_heads][head_dim][16 positions], then V [kv_heads][16 positions][head_dim].
constexpr std::uint64_t kv_page_layer_bytes(KvFormat format, std::uint32_t kv_heads,
                                            std::uint32_t head_dim) noexcept {
  return std::uint64_t{2} * kv_heads * kKvPagePositions * head_dim * (format == KvFormat::f32 ? 4 : 2);
}

// Stores the key and value of one position of all kv heads (rounded to the KV format).
struct KvStoreArgs {
  KvFormat format = KvFormat::f32;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::byte* page = nullptr;     // this layer's part of the page that holds the position
  std::uint32_t slot = 0;        // position % 16
  const float* key = nullptr;    // [kv_heads, head_dim]
  const float* value = nullptr;  // [kv_heads, head_dim]
};

// Rows of one sequence at the positions `position`, position + 1, ...; each against the positions
// max(0, its own - window + 1) .. its own (window 0: from 0), so rows do not see each other.
// Online softmax over blocks of 64 positions (0 .. 63, 64 .. 127, ...) in ascending order. Within a block:
// scores by fma over d ascending from +0, times `scale`; positions that the row does not see are left out;
// running maximum; a factor c = exp(old max - new max) for what is there already; sum[p % 16] *= c, then
// += weight for positions p ascending, added in lane order at the end; out[d] *= c, then
// fma(weight, V, out[d]) over positions ascending; at the end out / sum.
struct AttentionArgs {
  KvFormat format = KvFormat::f32;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;  // heads % kv_heads == 0; head h uses kv head h / (heads / kv_heads)
  std::uint32_t head_dim = 0;
  float scale = 1.0F;
  std::uint32_t window = 0;
  std::uint32_t position = 0;  // of the first row
  std::uint32_t rows = 1;
  const std::byte* kv_base = nullptr;  // page p of this layer is at kv_base + pages[p] * page_stride
  std::size_t page_stride = 0;
  const std::uint32_t* pages = nullptr;  // [last row's position / 16 + 1]
  const float* query = nullptr;          // [rows, query_stride], of which [heads, head_dim] are read
  std::size_t query_stride = 0;          // in elements; of no matter for one row
  float* out = nullptr;                  // [rows, out_stride], of which [heads, head_dim] are written
  std::size_t out_stride = 0;
  std::uint32_t kv_head_begin = 0;  // heads of these kv heads are computed
  std::uint32_t kv_head_end = 0;
};
inline constexpr std::uint32_t kAttentionBlock = 64;  // positions

enum class RopePairing : std::uint8_t { halves = 0, neighbours = 1 };

// One table per instruction set. Lengths are in elements; pointers need no alignment beyond their type.
struct KernelTable {
  std::string_view name;  // "scalar", "avx2", "avx512"
  bool (*supported)() noexcept;

  void (*matmul[kWeightFormats])(const MatmulArgs& args) noexcept;

  // x [rows, x_stride] f32 -> see QuantizedRows; the rows out_row .. out_row + rows - 1 of out are written.
  void (*quantize_rows)(const float* x, std::size_t x_stride, std::uint32_t rows, std::uint32_t inputs,
                        const QuantizedRows& out, std::uint32_t out_row) noexcept;

  // y = x * (1 / sqrt(mean(x^2) + eps)) * weight, mean of squares in lane order. In place allowed.
  void (*rms_norm)(const float* x, const float* weight, float eps, std::uint32_t n, float* y) noexcept;

  // out[i] = silu(gate[i]) * up[i], silu(v) = v / (1 + exp(-v)). In place allowed.
  void (*silu_multiply)(const float* gate, const float* up, std::size_t n, float* out) noexcept;

  // Rotates the first 2 * half entries of one head by the angles of its position.
  // For a pair (a, b): a' = fma(a, cos, -(b * sin)), b' = fma(b, cos, a * sin).
  void (*rope)(float* head, const float* cosines, const float* sines, std::uint32_t half,
               RopePairing pairing) noexcept;

  void (*kv_store)(const KvStoreArgs& args) noexcept;
  void (*attention)(const AttentionArgs& args) noexcept;

  // out[i] = fma(weight, x[i], out[i])
  void (*scale_add)(float weight, const float* x, std::size_t n, float* out) noexcept;
  // out[i] += x[i]
  void (*add)(const float* x, std::size_t n, float* out) noexcept;
  // Sum of x[i] * y[i], fma in lane order.
  float (*dot)(const float* x, const float* y, std::size_t n) noexcept;
  // Largest value (NaN if any is NaN), and the sum of exp(x[i] - max) in lane order.
  float (*max_value)(const float* x, std::size_t n) noexcept;
  float (*sum_exp)(const float* x, float max, std::size_t n) noexcept;
  // out[i] = exp(x[i] - max). In place allowed.
  void (*exp_shifted)(const float* x, float max, std::size_t n, float* out) noexcept;
  // The one exponential that all of the above use (relative error below 2e-7; 0 below -87.3, +inf
  // above 88.7).
  float (*exp)(float x) noexcept;
};

// Every variant that was compiled in, best first; "scalar" is always last and always supported.
COLIBRI_API std::span<const KernelTable* const> all_kernel_tables() noexcept;
// The variant called `name`, or null if there is none or this processor lacks it.
COLIBRI_API const KernelTable* find_kernel_table(std::string_view name) noexcept;
// The best variant that this processor supports.
COLIBRI_API const KernelTable& best_kernel_table() noexcept;

}  // namespace colibri::kernels
