// One call of every kernel of one variant, each inside a function that callgrind is told to count:
//
//   kernel_calls VARIANT
//
// prints the names of the counted calls in their order. Shapes are small and fixed, with tails of rows,
// outputs and inputs; values are fixed too. Every call is made once before it is counted, since the first
// one binds functions of libraries.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.hpp"

// What callgrind counts. Its name is that in instruction_counts_test.cpp; it must not become a jump.
extern "C" [[gnu::noinline]] void colibri_counted_call(const std::function<void()>& call) {
  call();
  asm volatile("" ::: "memory");
}

namespace colibri::kernels {
namespace {

// A kernel that is added to the table is to be called here too.
constexpr std::size_t kKernels = kWeightFormats + 13;
static_assert(sizeof(KernelTable) == sizeof(std::string_view) + (1 + kKernels) * sizeof(void (*)()));

void count(const std::string& kernel, const std::function<void()>& call) {
  call();
  colibri_counted_call(call);
  std::printf("%s\n", kernel.c_str());
}

std::vector<float> fixed_values(std::size_t n) {
  std::mt19937 engine(7);
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(engine() >> 8) * 0x1p-23F - 1.0F;
  return values;
}

// Lines of a cache, for what kernels want to be aligned.
struct alignas(64) Line {
  std::byte bytes[64];
};
std::vector<Line> lines(std::uint64_t bytes) { return std::vector<Line>((bytes + 63) / 64); }
std::byte* start(std::vector<Line>& memory) { return memory.front().bytes; }

void count_matmul(const KernelTable& table, WeightFormat format, std::uint32_t rows) {
  constexpr std::uint32_t kOutputs = 72, kInputs = 200;
  const std::vector<float> weights = fixed_values(std::size_t{kOutputs} * kInputs);
  const PackedShape shape = packed_shape(format, kOutputs, kInputs);
  std::vector<Line> packed = lines(shape.bytes);
  for (std::uint32_t panel = 0; panel < shape.panels; ++panel) {
    const std::uint32_t first = panel * kPanelOutputs;
    pack_panel(format, weights.data() + std::size_t{first} * kInputs,
               std::min(kPanelOutputs, kOutputs - first), kInputs, start(packed) + panel * shape.panel_bytes);
  }
  const std::vector<float> x = fixed_values(std::size_t{rows} * kInputs);
  std::vector<Line> quantized = lines(quantized_rows_bytes(rows, kInputs));
  std::vector<float> y(std::size_t{rows} * kOutputs);
  MatmulArgs args;
  args.weights = {.format = format, .outputs = kOutputs, .inputs = kInputs, .data = start(packed)};
  args.x = x.data();
  args.x_stride = kInputs;
  args.x_quantized = quantized_rows_at(start(quantized), rows, kInputs);
  args.rows = rows;
  args.y = y.data();
  args.y_stride = kOutputs;
  args.panel_end = shape.panels;
  table.quantize_rows(x.data(), kInputs, rows, kInputs, args.x_quantized, 0);
  count("matmul_" + std::string(weight_format_name(format)) + "/" + std::to_string(rows),
        [&] { table.matmul[static_cast<int>(format)](args); });
}

void count_attention(const KernelTable& table, KvFormat format) {
  constexpr std::uint32_t kHeads = 4, kKvHeads = 2, kHeadDim = 64, kPosition = 70;
  const std::string suffix = format == KvFormat::f32 ? "_f32" : "_bf16";
  const std::uint64_t page_bytes = kv_page_layer_bytes(format, kKvHeads, kHeadDim);
  const std::uint32_t pages[] = {0, 1, 2, 3, 4};
  std::vector<Line> memory = lines(std::size(pages) * page_bytes);
  const std::vector<float> row = fixed_values(kKvHeads * kHeadDim);
  KvStoreArgs store{
      .format = format, .kv_heads = kKvHeads, .head_dim = kHeadDim, .key = row.data(), .value = row.data()};
  for (std::uint32_t position = 0; position <= kPosition; ++position) {
    store.page = start(memory) + position / kKvPagePositions * page_bytes;
    store.slot = position % kKvPagePositions;
    table.kv_store(store);
  }
  count("kv_store" + suffix, [&] { table.kv_store(store); });

  for (const std::uint32_t rows : {1U, 13U}) {
    const std::vector<float> query = fixed_values(std::size_t{rows} * kHeads * kHeadDim);
    std::vector<float> out(query.size());
    const AttentionArgs args{.format = format,
                             .heads = kHeads,
                             .kv_heads = kKvHeads,
                             .head_dim = kHeadDim,
                             .scale = 0.125F,
                             .position = kPosition + 1 - rows,
                             .rows = rows,
                             .kv_base = start(memory),
                             .page_stride = page_bytes,
                             .pages = pages,
                             .query = query.data(),
                             .query_stride = kHeads * kHeadDim,
                             .out = out.data(),
                             .out_stride = kHeads * kHeadDim,
                             .kv_head_end = kKvHeads};
    count("attention" + suffix + "/" + std::to_string(rows), [&] { table.attention(args); });
  }
}

void count_rows(const KernelTable& table) {
  constexpr std::uint32_t kLength = 200, kHalf = 32;
  const std::vector<float> x = fixed_values(kLength);
  const std::vector<float> weight(kLength, 0.5F);
  std::vector<float> y = x;
  std::vector<Line> memory = lines(quantized_rows_bytes(1, kLength));
  const QuantizedRows quantized = quantized_rows_at(start(memory), 1, kLength);
  float result = 0;
  count("quantize_rows", [&] { table.quantize_rows(x.data(), kLength, 1, kLength, quantized, 0); });
  count("rms_norm", [&] { table.rms_norm(x.data(), weight.data(), 1e-6F, kLength, y.data()); });
  count("silu_multiply", [&] { table.silu_multiply(x.data(), weight.data(), kLength, y.data()); });
  for (const RopePairing pairing : {RopePairing::halves, RopePairing::neighbours}) {
    count(pairing == RopePairing::halves ? "rope_halves" : "rope_neighbours",
          [&] { table.rope(y.data(), x.data(), weight.data(), kHalf, pairing); });
  }
  count("scale_add", [&] { table.scale_add(0.25F, x.data(), kLength, y.data()); });
  count("add", [&] { table.add(x.data(), kLength, y.data()); });
  count("dot", [&] { result += table.dot(x.data(), weight.data(), kLength); });
  count("max_value", [&] { result += table.max_value(x.data(), kLength); });
  count("sum_exp", [&] { result += table.sum_exp(x.data(), 1.0F, kLength); });
  count("exp_shifted", [&] { table.exp_shifted(x.data(), 1.0F, kLength, y.data()); });
  count("exp", [&] { result += table.exp(x[0]); });
}

void count_all(const KernelTable& table) {
  for (int format = 0; format < kWeightFormats; ++format) {
    for (const std::uint32_t rows : {1U, 13U}) count_matmul(table, static_cast<WeightFormat>(format), rows);
  }
  for (const KvFormat format : {KvFormat::f32, KvFormat::bf16}) count_attention(table, format);
  count_rows(table);
}

}  // namespace
}  // namespace colibri::kernels

int main(int argc, char** argv) {
  const colibri::kernels::KernelTable* table =
      argc == 2 ? colibri::kernels::find_kernel_table(argv[1]) : nullptr;
  if (table == nullptr) {
    std::fprintf(stderr,
                 "usage: kernel_calls VARIANT; VARIANT is one that `colibri version --verbose` lists\n");
    return 2;
  }
  colibri::kernels::count_all(*table);
}
