// Names and shapes of dense tensors, derived from the spec.
#include "io/container/dense_layout.hpp"

#include <algorithm>

#include "io/container/container_files.hpp"

namespace colibri {
namespace {

std::string shape_text(std::uint32_t rows, std::uint32_t columns) {
  return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

class SlotList {
 public:
  explicit SlotList(const ModelSpec& spec) : spec_(spec) {}

  void vector(std::string name, std::uint32_t size) {
    slots_.push_back({std::move(name), DenseRole::vector, 1, size});
  }
  void matrix(std::string name, std::uint32_t rows, std::uint32_t columns,
              DenseRole role = DenseRole::matrix) {
    slots_.push_back({std::move(name), role, rows, columns});
  }
  // gate and up [width, hidden], down [hidden, width]
  void ffn(const std::string& prefix, std::uint32_t width) {
    matrix(prefix + ".gate.weight", width, spec_.hidden_size);
    matrix(prefix + ".up.weight", width, spec_.hidden_size);
    matrix(prefix + ".down.weight", spec_.hidden_size, width);
  }
  void attention(const std::string& layer) {
    const AttentionSpec& attention = spec_.attention;
    const std::uint32_t qkv_size = attention.query_size() + 2 * attention.kv_size();
    vector(layer + ".attention_norm.weight", spec_.hidden_size);
    matrix(layer + ".qkv.weight", qkv_size, spec_.hidden_size);
    if (attention.qkv_bias) vector(layer + ".qkv.bias", qkv_size);
    matrix(layer + ".attention_output.weight", spec_.hidden_size, attention.query_size());
    if (attention.output_bias) vector(layer + ".attention_output.bias", spec_.hidden_size);
    if (attention.qk_norm != QkNorm::none) {
      const bool per_head = attention.qk_norm == QkNorm::per_head;
      vector(layer + ".q_norm.weight", per_head ? attention.head_dim : attention.query_size());
      vector(layer + ".k_norm.weight", per_head ? attention.head_dim : attention.kv_size());
    }
    vector(layer + ".ffn_norm.weight", spec_.hidden_size);
  }
  void experts_side(const std::string& layer) {
    matrix(layer + ".router.weight", spec_.num_experts, spec_.hidden_size, DenseRole::router);
    if (spec_.shared_expert.intermediate_size == 0) return;
    ffn(layer + ".shared", spec_.shared_expert.intermediate_size);
    if (spec_.shared_expert.sigmoid_gate) vector(layer + ".shared_gate.weight", spec_.hidden_size);
  }
  std::vector<DenseSlot> take() && { return std::move(slots_); }

 private:
  const ModelSpec& spec_;
  std::vector<DenseSlot> slots_;
};

bool format_allowed(DenseRole role, kernels::WeightFormat format) {
  switch (role) {
    case DenseRole::vector:
    case DenseRole::router: return format == kernels::WeightFormat::f32;
    case DenseRole::embedding: return !kernels::has_integer_weights(format);
    case DenseRole::matrix: return true;
  }
  return false;
}

}  // namespace

std::vector<DenseSlot> dense_slots(const ModelSpec& spec) {
  SlotList list(spec);
  list.matrix("embedding.weight", spec.vocab_size, spec.hidden_size, DenseRole::embedding);
  for (std::uint32_t i = 0; i < spec.num_layers(); ++i) {
    const std::string layer = "layers." + std::to_string(i);
    list.attention(layer);
    if (spec.layers[i].moe) {
      list.experts_side(layer);
    } else {
      list.ffn(layer + ".ffn", spec.layers[i].dense_intermediate_size);
    }
  }
  list.vector("final_norm.weight", spec.hidden_size);
  if (!spec.tied_head) list.matrix("head.weight", spec.vocab_size, spec.hidden_size);
  return std::move(list).take();
}

Status check_dense_tensors(const ModelSpec& spec, std::span<const DenseTensor> tensors,
                           const std::filesystem::path& file) {
  const auto wrong = [&file](const std::string& what) {
    return file_error(ErrorCode::corrupt, "the tensors do not fit model_spec.json", file, Status::kNoOffset,
                      ": " + what + "; convert the model again");
  };
  const std::vector<DenseSlot> slots = dense_slots(spec);
  for (std::size_t i = 0; i < std::max(slots.size(), tensors.size()); ++i) {
    if (i >= tensors.size()) return wrong("expected tensor " + slots[i].name + ", found none");
    if (i >= slots.size()) return wrong("unexpected tensor " + tensors[i].name);
    const DenseSlot& slot = slots[i];
    const DenseTensor& tensor = tensors[i];
    if (slot.name != tensor.name) return wrong("expected tensor " + slot.name + ", found " + tensor.name);
    if (slot.rows != tensor.rows || slot.columns != tensor.columns) {
      return wrong(slot.name + ", expected " + shape_text(slot.rows, slot.columns) + ", found " +
                   shape_text(tensor.rows, tensor.columns));
    }
    if (tensor.packed != (slot.role != DenseRole::vector) || !format_allowed(slot.role, tensor.format)) {
      return wrong(slot.name + " is stored as " + std::string(kernels::weight_format_name(tensor.format)) +
                   (tensor.packed ? ", packed" : ", not packed") + ", which is not allowed for it");
    }
  }
  return Status::ok();
}

}  // namespace colibri
