// Shapes as config.json has them, so that the same reader fills the spec as for real models.
#include "io/checkpoint/synthetic_model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "io/checkpoint/model_config.hpp"
#include "io/checkpoint/weights_option.hpp"
#include "io/container/container_writer.hpp"
#include "io/container/dense_layout.hpp"
#include "io/text/nearest_name.hpp"
#include "kernels/packed_matrix.hpp"

namespace colibri {
namespace {

struct ShapeRow {
  SyntheticShape shape;
  std::uint32_t layers;
  std::string_view config;  // all but num_hidden_layers
};

constexpr ShapeRow kShapes[] = {
    {{"olmoe-1b-7b", "OLMoE-1B-7B: 16 layers of 64 experts, 8 a token"},
     16,
     R"("model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_attention_heads": 16,
        "num_key_value_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "vocab_size": 50304,
        "max_position_embeddings": 4096, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "norm_topk_prob": false,
        "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": false)"},
    {{"qwen3-30b-a3b", "Qwen3-30B-A3B: 48 layers of 128 experts, 8 a token"},
     48,
     R"("model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
        "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960,
        "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "norm_topk_prob": true, "hidden_act": "silu",
        "attention_bias": false, "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": false)"},
    {{"mixtral-8x7b", "Mixtral-8x7B: 32 layers of 8 experts, 2 a token"},
     32,
     R"("model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000,
        "max_position_embeddings": 32768, "rope_theta": 1000000.0, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "tie_word_embeddings": false)"},
    {{"deepseek-v3",
      "the experts of DeepSeek-V3: 61 layers, 3 of them dense, 256 experts, 8 a token, one "
      "shared; router with sigmoid scores in groups; attention is grouped-query, not latent"},
     61,
     R"("model_type": "qwen2_moe", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "shared_expert_intermediate_size": 2048, "num_attention_heads": 56, "num_key_value_heads": 8,
        "num_experts": 256, "num_experts_per_tok": 8, "vocab_size": 129280, "max_position_embeddings": 163840,
        "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "norm_topk_prob": true, "hidden_act": "silu",
        "qkv_bias": false, "decoder_sparse_step": 1, "mlp_only_layers": [0, 1, 2], "tie_word_embeddings": false)"},
};

constexpr std::uint32_t kMaximumLayers = 1024;
constexpr double kMaximumSkew = 4;
constexpr std::size_t kNormals = std::size_t{1} << 20;  // drawn once, used from random places
constexpr std::uint32_t kDistinctExperts = 8;

const ShapeRow* find_shape(std::string_view name) {
  const auto found = std::find_if(std::begin(kShapes), std::end(kShapes),
                                  [name](const ShapeRow& row) { return row.shape.name == name; });
  return found == std::end(kShapes) ? nullptr : found;
}

Status unknown_shape(const std::string& name) {
  std::vector<std::string_view> names;
  std::string list;
  for (const ShapeRow& row : kShapes) {
    names.push_back(row.shape.name);
    list += (list.empty() ? "" : ", ") + std::string(row.shape.name);
  }
  const std::string_view nearest = nearest_name(name, names);
  return {ErrorCode::invalid_input,
          "unknown shape '" + name + "'; expected one of " + list +
              (nearest.empty() ? "" : "; did you mean '" + std::string(nearest) + "'?")};
}

Result<ModelSpec> make_spec(const ShapeRow& row, const SyntheticModelOptions& options) {
  const std::uint32_t layers = options.layers == 0 ? row.layers : options.layers;
  // With fewer layers than the shape's dense ones, keep one MoE layer.
  std::string config(row.config);
  if (const std::size_t dense = config.find("[0, 1, 2]"); dense != std::string::npos && layers <= 3) {
    config.replace(dense, 9, layers == 1 ? "[]" : layers == 2 ? "[0]" : "[0, 1]");
  }
  config = "{" + config + ", \"num_hidden_layers\": " + std::to_string(layers) + "}";
  COLIBRI_ASSIGN_OR_RETURN(ParsedConfig parsed,
                           parse_model_config(config, std::string(row.shape.name), "", ""));
  ModelSpec spec = std::move(parsed.spec);
  spec.weights_option = options.weights;
  spec.expert_chunk_size = ConvertOptions{}.chunk_bytes;
  spec.weight_dtype = *weights_option_format(options.weights);  // checked before
  spec.embedding_dtype = spec.weight_dtype == kernels::WeightFormat::f32 ? kernels::WeightFormat::f32
                                                                         : kernels::WeightFormat::bf16;
  if (row.shape.name == "deepseek-v3") {
    spec.router.score = kernels::RouterScore::sigmoid;
    spec.router.groups = kernels::RouterGroups::sum_of_two_best;
    spec.router.num_groups = 8;
    spec.router.groups_per_token = 4;
    spec.router.scale = 2.5F;
    spec.shared_expert.sigmoid_gate = false;
  }
  return spec;
}

// Hands out rows of normal numbers, and packs matrices of them.
class RandomMatrices {
 public:
  explicit RandomMatrices(std::uint64_t seed) : seed_(seed), random_(seed) {
    std::normal_distribution<float> normal;
    normals_.resize(kNormals);
    for (float& value : normals_) value = normal(random_);
  }

  // Starts the numbers of a unit: they must not depend on which units a former run has left.
  void begin(std::uint64_t unit) { random_.seed(seed_ * 0x9E3779B97F4A7C15ULL + unit); }

  // gains [rows] or empty: what each row is scaled by, beside 1 / sqrt(columns).
  Status pack(kernels::WeightFormat format, std::uint32_t rows, std::uint32_t columns,
              const std::vector<float>& gains, UnitSink& sink) {
    const kernels::PackedShape shape = kernels::packed_shape(format, rows, columns);
    std::vector<std::byte> panel(shape.panel_bytes);
    std::vector<float> values(std::size_t{kernels::kPanelOutputs} * columns);  // [16, columns]
    const float scale = 1.0F / std::sqrt(static_cast<float>(columns));
    for (std::uint32_t first = 0; first < rows; first += kernels::kPanelOutputs) {
      const std::uint32_t count = std::min(kernels::kPanelOutputs, rows - first);
      for (std::uint32_t row = 0; row < count; ++row) {
        fill(values.data() + std::size_t{row} * columns, columns,
             scale * (gains.empty() ? 1.0F : gains[first + row]));
      }
      kernels::pack_panel(format, values.data(), count, columns, panel.data());
      COLIBRI_RETURN_IF_ERROR(sink.append(panel));
    }
    return {};
  }

  std::mt19937_64& random() noexcept { return random_; }

 private:
  void fill(float* values, std::size_t count, float scale) {
    while (count > 0) {
      const std::size_t from = random_() % (kNormals / 2);
      const std::size_t now = std::min(count, kNormals - from);
      for (std::size_t i = 0; i < now; ++i) values[i] = normals_[from + i] * scale;
      values += now;
      count -= now;
    }
  }

  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::vector<float> normals_;
};

// The bytes of one expert record, kept in memory.
class RecordBytes final : public UnitSink {
 public:
  Status append(std::span<const std::byte> bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return {};
  }
  Status pad_to(std::uint64_t offset) override {
    bytes_.resize(std::max<std::size_t>(bytes_.size(), offset));
    return {};
  }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class SyntheticWriter {
 public:
  SyntheticWriter(const ModelSpec& spec, const SyntheticModelOptions& options, ContainerWriter& writer)
      : spec_(spec), options_(options), writer_(writer), matrices_(options.seed) {}

  Status run() {
    if (writer_.complete()) return writer_.finish();
    std::uint64_t unit = 0;
    for (const DenseSlot& slot : dense_slots(spec_)) {
      matrices_.begin(++unit);
      COLIBRI_RETURN_IF_ERROR(writer_.write_tensor([&](UnitSink& sink) { return write_dense(slot, sink); }));
      COLIBRI_RETURN_IF_ERROR(step());
    }
    std::vector<RecordBytes> pool(std::min(kDistinctExperts, spec_.num_experts));
    matrices_.begin(0);
    for (RecordBytes& record : pool) COLIBRI_RETURN_IF_ERROR(make_record(record));
    const std::uint64_t records = std::uint64_t{spec_.num_moe_layers()} * spec_.num_experts;
    for (std::uint64_t i = 0; i < records; ++i) {
      COLIBRI_RETURN_IF_ERROR(
          writer_.write_record([&](UnitSink& sink) { return sink.append(pool[i % pool.size()].bytes()); }));
      COLIBRI_RETURN_IF_ERROR(step());
    }
    return writer_.finish();
  }

 private:
  Status step() {
    if (options_.progress) options_.progress(writer_.bytes_done(), writer_.total_bytes());
    if (!options_.cancelled || !options_.cancelled()) return {};
    return {ErrorCode::cancelled, "writing was stopped; run it again to go on"};
  }

  // Norms are one and biases zero.
  Status write_dense(const DenseSlot& slot, UnitSink& sink) {
    if (slot.role == DenseRole::vector) {
      const std::vector<float> values(slot.columns, slot.name.ends_with("bias") ? 0.0F : 1.0F);
      return sink.append(std::as_bytes(std::span(values)));
    }
    kernels::WeightFormat format = spec_.weight_dtype;
    if (slot.role == DenseRole::router) format = kernels::WeightFormat::f32;
    if (slot.role == DenseRole::embedding) format = spec_.embedding_dtype;
    std::vector<float> gains;
    if (slot.role == DenseRole::router && options_.skew > 0) gains = skewed_gains();
    return matrices_.pack(format, slot.rows, slot.columns, gains, sink);
  }

  // (1 + rank)^-skew, ranks in a random order of their own for each layer.
  std::vector<float> skewed_gains() {
    std::vector<float> gains(spec_.num_experts);
    for (std::size_t rank = 0; rank < gains.size(); ++rank) {
      gains[rank] = static_cast<float>(std::pow(1.0 + static_cast<double>(rank), -options_.skew));
    }
    std::shuffle(gains.begin(), gains.end(), matrices_.random());
    return gains;
  }

  Status make_record(RecordBytes& record) {
    const ExpertLayout& layout = writer_.layout();
    const std::uint32_t hidden = spec_.hidden_size, width = spec_.intermediate_size;
    COLIBRI_RETURN_IF_ERROR(matrices_.pack(layout.format, width, hidden, {}, record));
    COLIBRI_RETURN_IF_ERROR(record.pad_to(layout.up_offset));
    COLIBRI_RETURN_IF_ERROR(matrices_.pack(layout.format, width, hidden, {}, record));
    COLIBRI_RETURN_IF_ERROR(record.pad_to(layout.down_offset));
    return matrices_.pack(layout.format, hidden, width, {}, record);
  }

  const ModelSpec& spec_;
  const SyntheticModelOptions& options_;
  ContainerWriter& writer_;
  RandomMatrices matrices_;
};

Status check_options(const SyntheticModelOptions& options) {
  if (options.layers > kMaximumLayers) {
    return {ErrorCode::invalid_input, "too many layers: " + std::to_string(options.layers) + "; at most " +
                                          std::to_string(kMaximumLayers)};
  }
  if (!(options.skew >= 0 && options.skew <= kMaximumSkew)) {
    return {ErrorCode::invalid_input, "skew is out of range; expected a number from 0 to 4"};
  }
  if (!weights_option_format(options.weights)) return unknown_weights(options.weights, false);
  return {};
}

// A run with other options must not be taken up by this one.
std::string identity_of(const SyntheticModelOptions& options) {
  return "synthetic " + options.shape + " layers " + std::to_string(options.layers) + " weights " +
         options.weights + " skew " + std::to_string(options.skew) + " seed " + std::to_string(options.seed);
}

}  // namespace

std::span<const SyntheticShape> synthetic_shapes() noexcept {
  static constexpr auto kList = [] {
    std::array<SyntheticShape, std::size(kShapes)> list{};
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = kShapes[i].shape;
    return list;
  }();
  return kList;
}

Result<ModelSpec> synthetic_model_spec(const SyntheticModelOptions& options) {
  COLIBRI_RETURN_IF_ERROR(check_options(options));
  const ShapeRow* row = find_shape(options.shape);
  if (row == nullptr) return unknown_shape(options.shape);
  return make_spec(*row, options);
}

Result<ConvertReport> write_synthetic_model(const std::filesystem::path& output,
                                            const SyntheticModelOptions& options) {
  COLIBRI_ASSIGN_OR_RETURN(const ModelSpec spec, synthetic_model_spec(options));
  ContainerPlan plan;
  plan.spec = spec;
  for (const DenseSlot& slot : dense_slots(spec)) {
    DenseTensor tensor{slot.name, slot.role != DenseRole::vector, kernels::WeightFormat::f32, slot.rows,
                       slot.columns};
    if (slot.role == DenseRole::embedding) tensor.format = spec.embedding_dtype;
    if (slot.role == DenseRole::matrix) tensor.format = spec.weight_dtype;
    plan.tensors.push_back(std::move(tensor));
  }
  plan.identity = identity_of(options);
  COLIBRI_ASSIGN_OR_RETURN(ContainerWriter writer,
                           ContainerWriter::open(output, std::move(plan), options.force, [](std::string) {}));
  COLIBRI_RETURN_IF_ERROR(SyntheticWriter(spec, options, writer).run());
  return ConvertReport{spec, writer.dense_bytes(), writer.expert_bytes(), 0, writer.resumed()};
}

}  // namespace colibri
