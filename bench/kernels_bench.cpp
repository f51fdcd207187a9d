// Throughput of the kernels on one core, per variant: matrix products at several row
// counts, one row with weights that no cache holds, attention, quantisation, routing, scratch;
// and what the machine can do at most. `items_per_second` counts operations (a multiply and an
// add are two), so 250G means 250 GOP/s; `of_peak` is the share of what the instructions of a
// product, or memory for one row, were measured to do at the start of the run.
//
// --benchmark_out has the machine, its peaks and the build as context: see bench/compare.py.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/machine_peaks.hpp"
#include "kernels/kernel_table.hpp"
#include "kernels/router.hpp"
#include "stages/memory_cursor.hpp"

namespace colibri::kernels {
namespace {

using Peaks = std::vector<MachinePeak>;

// 0 when this processor has no such peak.
double rate(const Peaks& peaks, const std::string& name) {
  const auto found =
      std::find_if(peaks.begin(), peaks.end(), [&](const MachinePeak& peak) { return peak.name == name; });
  return found == peaks.end() ? 0 : found->per_second;
}

// What bounds a product of this variant: the instruction that it is made of.
double product_peak(const Peaks& peaks, const KernelTable& table, WeightFormat format) {
  const std::string variant(table.name);
  if (!has_integer_weights(format)) return rate(peaks, "peak_fma/" + variant);
  if (variant == "avx512") return rate(peaks, "peak_vpdpbusd/" + variant);
  return rate(peaks, (format == WeightFormat::int8_g64 ? "peak_vpmaddwd/" : "peak_vpmaddubsw/") + variant);
}

struct FreeMemory {
  void operator()(std::byte* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, FreeMemory>;

Bytes aligned_bytes(std::uint64_t size) {
  return Bytes(static_cast<std::byte*>(std::aligned_alloc(64, (size + 63) / 64 * 64)));
}

std::vector<float> random_values(std::size_t n) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(engine);
  return values;
}

constexpr std::uint32_t kExpertOutputs = 1024;
constexpr std::uint32_t kManyOutputs = 128 * 1024;  // 151 MB in int4

// W [outputs, 2048]
void matmul(benchmark::State& state, const KernelTable& table, const Peaks& peaks, WeightFormat format,
            std::uint32_t outputs, std::uint32_t rows) {
  constexpr std::uint32_t kInputs = 2048;
  const PackedShape shape = packed_shape(format, outputs, kInputs);
  const Bytes packed = aligned_bytes(shape.bytes);
  const std::vector<float> weights = random_values(std::size_t{kPanelOutputs} * kInputs);
  for (std::uint32_t panel = 0; panel < shape.panels; ++panel) {
    pack_panel(format, weights.data(), kPanelOutputs, kInputs, packed.get() + panel * shape.panel_bytes);
  }
  const std::vector<float> x = random_values(std::size_t{rows} * kInputs);
  const Bytes quantized = aligned_bytes(quantized_rows_bytes(rows, kInputs));
  std::vector<float> y(std::size_t{rows} * outputs);

  MatmulArgs args;
  args.weights = {.format = format, .outputs = outputs, .inputs = kInputs, .data = packed.get()};
  args.x = x.data();
  args.x_stride = kInputs;
  args.x_quantized = quantized_rows_at(quantized.get(), rows, kInputs);
  args.rows = rows;
  args.y = y.data();
  args.y_stride = outputs;
  args.panel_end = shape.panels;
  table.quantize_rows(x.data(), kInputs, rows, kInputs, args.x_quantized, 0);
  const double begin = thread_seconds();
  for (auto _ : state) {
    table.matmul[static_cast<int>(format)](args);
    benchmark::ClobberMemory();
  }
  const double seconds = thread_seconds() - begin;
  const std::int64_t operations = state.iterations() * 2 * rows * std::int64_t{outputs} * kInputs;
  const std::int64_t bytes = state.iterations() * static_cast<std::int64_t>(shape.bytes);
  state.SetItemsProcessed(operations);
  state.SetBytesProcessed(bytes);
  const bool in_memory = outputs == kManyOutputs;
  const double peak = in_memory ? rate(peaks, "peak_read_memory") : product_peak(peaks, table, format);
  const auto work = static_cast<double>(in_memory ? bytes : operations);
  if (peak > 0) state.counters["of_peak"] = work / seconds / peak;
}

void quantize(benchmark::State& state, const KernelTable& table) {
  constexpr std::uint32_t kInputs = 2048;
  const std::vector<float> x = random_values(kInputs);
  const Bytes memory = aligned_bytes(quantized_rows_bytes(1, kInputs));
  const QuantizedRows rows = quantized_rows_at(memory.get(), 1, kInputs);
  for (auto _ : state) {
    table.quantize_rows(x.data(), kInputs, 1, kInputs, rows, 0);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kInputs);
}

void silu(benchmark::State& state, const KernelTable& table) {
  const std::vector<float> x = random_values(4096);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    table.silu_multiply(x.data(), x.data(), x.size(), y.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(x.size()));
}

struct AttentionBench {
  const char* name;
  std::uint32_t heads, kv_heads;
  std::uint32_t rows, context;  // the last `rows` of `context` positions
  std::uint32_t sequences;      // taken in turn
};
// Prompts work on what caches hold; decoding reads all that a batch of sequences keeps, which no cache does.
constexpr AttentionBench kAttentionBenches[] = {
    {"prompt_512_rows", 16, 16, 512, 512, 1},        {"prompt_64_rows", 16, 16, 64, 512, 1},
    {"prompt_512_rows_grouped", 32, 4, 512, 512, 1}, {"prompt_64_rows_grouped", 32, 4, 64, 512, 1},
    {"prompt_64_rows_long", 16, 16, 64, 4096, 1},    {"decode", 16, 16, 1, 512, 32},
    {"decode_grouped", 32, 4, 1, 512, 128},
};

void attention(benchmark::State& state, const KernelTable& table, const Peaks& peaks, KvFormat format,
               const AttentionBench& bench) {
  constexpr std::uint32_t kHeadDim = 128;
  const std::uint32_t page_count =
      (bench.context + kKvPagePositions - 1) / kKvPagePositions;  // of a sequence
  const std::uint64_t page_bytes = kv_page_layer_bytes(format, bench.kv_heads, kHeadDim);
  const Bytes memory = aligned_bytes(page_bytes * page_count * bench.sequences);
  const std::size_t channels = std::size_t{bench.kv_heads} * kHeadDim;
  const std::vector<float> values = random_values(channels * bench.context);
  std::vector<std::uint32_t> pages(page_count);
  for (std::uint32_t page = 0; page < page_count; ++page) pages[page] = page;
  for (std::uint32_t p = 0; p < bench.context * bench.sequences; ++p) {
    const float* row = values.data() + p % bench.context * channels;
    table.kv_store(
        {.format = format,
         .kv_heads = bench.kv_heads,
         .head_dim = kHeadDim,
         .page = memory.get() +
                 (p / bench.context * page_count + p % bench.context / kKvPagePositions) * page_bytes,
         .slot = p % bench.context % kKvPagePositions,
         .key = row,
         .value = row});
  }
  const std::size_t width = std::size_t{bench.heads} * kHeadDim;
  const std::vector<float> query = random_values(width * bench.rows);
  std::vector<float> out(query.size());
  AttentionArgs args;
  args.format = format;
  args.heads = bench.heads;
  args.kv_heads = bench.kv_heads;
  args.head_dim = kHeadDim;
  args.scale = 0.088F;
  args.position = bench.context - bench.rows;
  args.rows = bench.rows;
  args.page_stride = page_bytes;
  args.pages = pages.data();
  args.query = query.data();
  args.query_stride = width;
  args.out = out.data();
  args.out_stride = width;
  args.kv_head_end = bench.kv_heads;
  std::uint32_t sequence = 0;
  const double begin = thread_seconds();
  for (auto _ : state) {
    args.kv_base = memory.get() + sequence * page_count * page_bytes;
    sequence = (sequence + 1) % bench.sequences;
    table.attention(args);
    benchmark::ClobberMemory();
  }
  const double seconds = thread_seconds() - begin;
  // Row by row, and two operations each for the scores and for the weighted sum.
  const std::int64_t keys = std::int64_t{bench.rows} * (2 * args.position + bench.rows + 1) / 2;
  const std::int64_t operations = state.iterations() * 4 * static_cast<std::int64_t>(width) * keys;
  const std::int64_t bytes = state.iterations() * static_cast<std::int64_t>(page_bytes * page_count);
  state.SetItemsProcessed(operations);
  state.SetBytesProcessed(bytes);
  const bool in_memory = bench.sequences > 1;
  const double peak = rate(peaks, in_memory ? "peak_read_memory" : "peak_fma/" + std::string(table.name));
  const auto work = static_cast<double>(in_memory ? bytes : operations);
  if (peak > 0) state.counters["of_peak"] = work / seconds / peak;
}

// Logits to picks and weights, of one row.
void route(benchmark::State& state, const KernelTable& table) {
  RouterForm form;
  form.num_experts = static_cast<std::uint32_t>(state.range(0));
  form.num_experts_per_token = static_cast<std::uint32_t>(state.range(1));
  form.renormalise = RouterRenormalise::yes;
  constexpr std::uint32_t kRows = 2048;  // in turn: fewer would be learnt by heart
  const std::vector<float> logits = random_values(std::size_t{kRows} * form.num_experts);
  const Bytes scratch = aligned_bytes(route_row_scratch_bytes(form));
  std::vector<std::uint32_t> experts(form.num_experts_per_token);
  std::vector<float> weights(form.num_experts_per_token);
  std::uint32_t row = 0;
  for (auto _ : state) {
    bool finite = route_row(table, form, logits.data() + std::size_t{row} * form.num_experts, nullptr,
                            scratch.get(), experts.data(), weights.data());
    benchmark::DoNotOptimize(finite);
    row = (row + 1) % kRows;
  }
}

// One array taken of a stage's memory: what a kernel's scratch costs.
void take_scratch(benchmark::State& state) {
  const Bytes memory = aligned_bytes(4096);
  for (auto _ : state) {
    MemoryCursor cursor({memory.get(), 4096});
    benchmark::DoNotOptimize(cursor);
    float* taken = cursor.take<float>(100);
    benchmark::DoNotOptimize(taken);
  }
}

// Quantised rows laid over memory, and those of one expert in them: what `compute` does for each expert.
void take_quantized_rows(benchmark::State& state) {
  const Bytes memory = aligned_bytes(quantized_rows_bytes(64, 1024));
  std::uint32_t inputs = 1024;
  for (auto _ : state) {
    benchmark::DoNotOptimize(inputs);
    QuantizedRows rows = quantized_rows_from(quantized_rows_at(memory.get(), 64, inputs), 32, inputs);
    benchmark::DoNotOptimize(rows);
  }
}

void register_variant(const KernelTable& table, const Peaks& peaks) {
  const std::string name(table.name);
  for (const WeightFormat format :
       {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8_g64, WeightFormat::int4_g32}) {
    const std::string matmul_name = "matmul_" + std::string(weight_format_name(format));
    auto* bench = benchmark::RegisterBenchmark(
        (matmul_name + "/" + name).c_str(), [&table, &peaks, format](benchmark::State& state) {
          matmul(state, table, peaks, format, kExpertOutputs, static_cast<std::uint32_t>(state.range(0)));
        });
    for (const int rows : {1, 2, 4, 8, 16, 64, 256}) bench->Arg(rows);
    benchmark::RegisterBenchmark((matmul_name + "_from_memory/" + name).c_str(),
                                 [&table, &peaks, format](benchmark::State& state) {
                                   matmul(state, table, peaks, format, kManyOutputs, 1);
                                 });
  }
  for (const KvFormat format : {KvFormat::f32, KvFormat::bf16}) {
    for (const AttentionBench& shape : kAttentionBenches) {
      const std::string label = (format == KvFormat::f32 ? "attention_f32/" : "attention_bf16/") + name + "/";
      benchmark::RegisterBenchmark((label + shape.name).c_str(),
                                   [&table, &peaks, format, &shape](benchmark::State& state) {
                                     attention(state, table, peaks, format, shape);
                                   });
    }
  }
  benchmark::RegisterBenchmark(("quantize_rows/" + name).c_str(),
                               [&table](benchmark::State& state) { quantize(state, table); });
  benchmark::RegisterBenchmark(("silu_multiply/" + name).c_str(),
                               [&table](benchmark::State& state) { silu(state, table); });
  benchmark::RegisterBenchmark(("route_row/" + name).c_str(),
                               [&table](benchmark::State& state) { route(state, table); })
      ->Args({8, 2})
      ->Args({64, 8})
      ->Args({128, 8})
      ->Args({64, 6});
}

// The processor's name as Linux has it.
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  }
  return "unknown";
}

void add_context(const Peaks& peaks) {
  benchmark::AddCustomContext("colibri_version", COLIBRI_VERSION);
  benchmark::AddCustomContext("build_type", COLIBRI_BUILD_TYPE);
  benchmark::AddCustomContext("compiler", COLIBRI_COMPILER);
  benchmark::AddCustomContext("cpu", processor());
  std::string variants;
  for (const KernelTable* table : all_kernel_tables()) {
    if (table->supported()) variants.append(variants.empty() ? "" : ", ").append(table->name);
  }
  benchmark::AddCustomContext("kernels", variants);
  for (const MachinePeak& peak : peaks) {
    benchmark::AddCustomContext(std::string(peak.name), std::to_string(peak.per_second));
  }
}

}  // namespace
}  // namespace colibri::kernels

int main(int argc, char** argv) {
  using namespace colibri::kernels;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const Peaks peaks = colibri::measure_machine_peaks();
  add_context(peaks);
  colibri::register_machine_peaks();
  for (const KernelTable* table : all_kernel_tables()) {
    if (table->supported()) register_variant(*table, peaks);
  }
  benchmark::RegisterBenchmark("take_scratch", take_scratch);
  benchmark::RegisterBenchmark("take_quantized_rows", take_quantized_rows);
  benchmark::RunSpecifiedBenchmarks();
}
