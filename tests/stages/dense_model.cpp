#include "dense_model.hpp"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "stages/kv_pages.hpp"

namespace colibri::testing {
namespace {

using kernels::WeightFormat;

std::uint64_t tensor_bytes(bool packed, WeightFormat format, std::uint32_t rows, std::uint32_t columns) {
  return packed ? kernels::packed_shape(format, rows, columns).bytes : std::uint64_t{columns} * sizeof(float);
}

}  // namespace

void DenseModel::Free::operator()(std::byte* memory) const { std::free(memory); }

DenseModel::DenseModel(ModelSpec spec, std::uint64_t seed) : spec_(std::move(spec)) {
  const WeightFormat format = spec_.weight_dtype;
  const AttentionSpec& a = spec_.attention;
  const std::uint32_t hidden = spec_.hidden_size;
  const std::uint32_t qkv = a.query_size() + 2 * a.kv_size();
  add("embedding.weight", true, spec_.embedding_dtype, spec_.vocab_size, hidden);
  if (!spec_.tied_head) add("head.weight", true, format, spec_.vocab_size, hidden);
  add("final_norm.weight", false, format, 1, hidden);
  for (std::uint32_t l = 0; l < spec_.num_layers(); ++l) {
    const std::string p = "layers." + std::to_string(l) + ".";
    add(p + "attention_norm.weight", false, format, 1, hidden);
    add(p + "ffn_norm.weight", false, format, 1, hidden);
    add(p + "qkv.weight", true, format, qkv, hidden);
    if (a.qkv_bias) add(p + "qkv.bias", false, format, 1, qkv);
    add(p + "attention_output.weight", true, format, hidden, a.query_size());
    if (a.output_bias) add(p + "attention_output.bias", false, format, 1, hidden);
    if (a.qk_norm != QkNorm::none) {
      const bool per_head = a.qk_norm == QkNorm::per_head;
      add(p + "q_norm.weight", false, format, 1, per_head ? a.head_dim : a.query_size());
      add(p + "k_norm.weight", false, format, 1, per_head ? a.head_dim : a.kv_size());
    }
    if (!spec_.layers[l].moe) {
      const std::uint32_t width = spec_.layers[l].dense_intermediate_size;
      add(p + "ffn.gate.weight", true, format, width, hidden);
      add(p + "ffn.up.weight", true, format, width, hidden);
      add(p + "ffn.down.weight", true, format, hidden, width);
      continue;
    }
    add(p + "router.weight", true, WeightFormat::f32, spec_.num_experts, hidden);
    if (const std::uint32_t width = spec_.shared_expert.intermediate_size; width > 0) {
      add(p + "shared.gate.weight", true, format, width, hidden);
      add(p + "shared.up.weight", true, format, width, hidden);
      add(p + "shared.down.weight", true, format, hidden, width);
      if (spec_.shared_expert.sigmoid_gate) add(p + "shared_gate.weight", false, format, 1, hidden);
    }
  }
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes_)));
  std::memset(memory_.get(), 0, bytes_);

  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (const DenseTensor& tensor : tensors_) {
    Tensor& values = values_[tensor.name];
    values = {tensor.rows, tensor.columns, tensor.packed, {}};
    values.values.resize(std::size_t{tensor.rows} * tensor.columns);
    const bool is_norm = tensor.name.find("norm") != std::string::npos;
    const float scale = tensor.packed ? 1.0F / std::sqrt(static_cast<float>(tensor.columns)) : 0.2F;
    for (float& value : values.values) value = (is_norm ? 1.0F : 0.0F) + normal(random) * scale;
    store(tensor, values);
  }
}

void DenseModel::add(const std::string& name, bool packed, WeightFormat format, std::uint32_t rows,
                     std::uint32_t columns) {
  const std::uint64_t bytes = tensor_bytes(packed, format, rows, columns);
  tensors_.push_back({name, packed, format, rows, columns, bytes_, bytes});
  bytes_ += (bytes + 63) / 64 * 64;
}

void DenseModel::store(const DenseTensor& tensor, Tensor& values) {
  std::byte* data = memory_.get() + tensor.offset;
  if (!tensor.packed) {
    std::memcpy(data, values.values.data(), tensor.bytes);
    return;
  }
  const auto shape = kernels::packed_shape(tensor.format, tensor.rows, tensor.columns);
  for (std::uint32_t panel = 0; panel < shape.panels; ++panel) {
    const std::uint32_t first = panel * kernels::kPanelOutputs;
    kernels::pack_panel(tensor.format, values.values.data() + std::size_t{first} * tensor.columns,
                        std::min(kernels::kPanelOutputs, tensor.rows - first), tensor.columns,
                        data + panel * shape.panel_bytes);
  }
  const kernels::PackedMatrix packed{tensor.format, tensor.rows, tensor.columns, data};
  for (std::uint32_t row = 0; row < tensor.rows; ++row) {
    kernels::unpack_row(packed, row, values.values.data() + std::size_t{row} * tensor.columns);
  }
}

const DenseTensor* DenseModel::find(std::string_view name) const noexcept {
  for (const DenseTensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

void DenseModel::set(const std::string& name, std::vector<float> values) {
  values_.at(name).values = std::move(values);
  store(*find(name), values_.at(name));
}

ModelSpec small_spec(const std::vector<bool>& moe_layers) {
  ModelSpec spec;
  spec.family = "test";
  spec.hidden_size = 48;
  spec.intermediate_size = 32;
  spec.vocab_size = 61;
  spec.max_seq_len = 256;
  spec.num_experts = 4;
  spec.num_experts_per_token = 2;
  spec.weight_dtype = kernels::WeightFormat::f32;
  spec.embedding_dtype = kernels::WeightFormat::f32;
  spec.attention.num_heads = 4;
  spec.attention.num_kv_heads = 2;
  spec.attention.head_dim = 16;
  spec.attention.scale = 0.25F;
  spec.rope.rotary_dim = 16;
  for (int i = 0; i < 8; ++i) spec.rope.inverse_frequencies.push_back(std::pow(10000.0, -i / 8.0));
  for (const bool moe : moe_layers) spec.layers.push_back({moe, moe ? 0U : 72U, 0});
  return spec;
}

DenseJob::DenseJob(const DenseModel& model, std::uint32_t max_rows, std::uint32_t wave_rows,
                   std::uint32_t in_flight, std::uint32_t kv_pages, kernels::KvFormat format)
    : dense(std::move(model.bind()).value()), arrays_(in_flight), steps_(in_flight) {
  const ModelSpec& spec = model.spec();
  services.plan = {.spec = &spec,
                   .max_rows = max_rows,
                   .wave_rows = wave_rows,
                   .in_flight = in_flight,
                   .threads = 2,
                   .kv_format = format};
  services.container = &model;
  services.kernels = kernels::find_kernel_table("scalar");
  services.dense = &dense;
  services.stopping = [] { return false; };
  const std::size_t layer_bytes =
      kernels::kv_page_layer_bytes(format, spec.attention.num_kv_heads, spec.attention.head_dim);
  kv_.assign(kv_pages * spec.num_layers() * layer_bytes / sizeof(float), std::nanf(""));
  services.kv = {.format = format,
                 .base = reinterpret_cast<std::byte*>(kv_.data()),
                 .block_stride = layer_bytes,
                 .pages = kv_pages,
                 .layer_in_run = {}};
  describe_kv_layers(spec, services.kv);
  for (std::uint32_t slot = 0; slot < in_flight; ++slot) {
    StepArrays& arrays = arrays_[slot];
    arrays.waves.resize(services.plan.waves_per_step());
    arrays.sequences.resize(max_rows);
    arrays.tokens.resize(max_rows);
    arrays.positions.resize(max_rows);
    arrays.flags.resize(max_rows);
    arrays.row_status.resize(max_rows);
    arrays.residual.assign(std::size_t{max_rows} * spec.hidden_size, std::nanf(""));
    Step& step = steps_[slot];
    step.slot = slot;
    step.waves = arrays.waves.data();
    step.sequences = arrays.sequences.data();
    step.tokens = arrays.tokens.data();
    step.positions = arrays.positions.data();
    step.flags = arrays.flags.data();
    step.row_status = arrays.row_status.data();
    step.residual = arrays.residual.data();
  }
  services.steps = steps_;
}

}  // namespace colibri::testing
