// Binds the tensors of model.bin to the views that the stages use.
#include "stages/dense_weights.hpp"

#include <string>
#include <utility>

namespace colibri {
namespace {

constexpr std::uint64_t kTensorAlignment = 64;

std::string shape_text(std::uint32_t rows, std::uint32_t columns) {
  return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

// Looks tensors up one after the other and remembers the first failure, so that binding reads as a list.
class Binder {
 public:
  Binder(const Container& container, const std::byte* memory) : container_(container), memory_(memory) {}

  // `integers_allowed`: whether the tensor may be quantised.
  kernels::PackedMatrix matrix(const std::string& name, std::uint32_t outputs, std::uint32_t inputs,
                               bool integers_allowed) {
    const DenseTensor* tensor = required(name);
    if (tensor == nullptr) return {};
    if (!tensor->packed || tensor->rows != outputs || tensor->columns != inputs) {
      fail(name, std::string(tensor->packed ? "a matrix of shape " : "a vector of shape ") +
                     shape_text(tensor->rows, tensor->columns) + ", expected a matrix " +
                     shape_text(outputs, inputs));
      return {};
    }
    if (static_cast<int>(tensor->format) >= kernels::kWeightFormats ||
        (kernels::has_integer_weights(tensor->format) && !integers_allowed)) {
      fail(name, "a weight format that the spec does not allow for it: " +
                     std::string(kernels::weight_format_name(tensor->format)));
      return {};
    }
    if (!placed(*tensor, kernels::packed_shape(tensor->format, outputs, inputs).bytes)) return {};
    return {tensor->format, outputs, inputs, memory_ + tensor->offset};
  }

  const float* vector(const std::string& name, std::uint32_t size) {
    const DenseTensor* tensor = required(name);
    return tensor == nullptr ? nullptr : bound_vector(*tensor, size);
  }

  const float* optional_vector(const std::string& name, std::uint32_t size) {
    const DenseTensor* tensor = container_.find(name);
    return tensor == nullptr ? nullptr : bound_vector(*tensor, size);
  }

  FfnMatrices ffn(const std::string& prefix, std::uint32_t hidden, std::uint32_t intermediate,
                  bool integers_allowed) {
    return {matrix(prefix + ".gate.weight", intermediate, hidden, integers_allowed),
            matrix(prefix + ".up.weight", intermediate, hidden, integers_allowed),
            matrix(prefix + ".down.weight", hidden, intermediate, integers_allowed)};
  }

  Status take_status() { return std::move(status_); }

 private:
  const DenseTensor* required(const std::string& name) {
    const DenseTensor* tensor = container_.find(name);
    if (tensor == nullptr) fail(name, "missing");
    return tensor;
  }

  const float* bound_vector(const DenseTensor& tensor, std::uint32_t size) {
    if (tensor.packed || tensor.rows != 1 || tensor.columns != size) {
      fail(tensor.name, std::string(tensor.packed ? "a matrix of shape " : "a vector of shape ") +
                            shape_text(tensor.rows, tensor.columns) + ", expected a vector of " +
                            std::to_string(size));
      return nullptr;
    }
    if (!placed(tensor, std::uint64_t{size} * sizeof(float))) return nullptr;
    return reinterpret_cast<const float*>(memory_ + tensor.offset);
  }

  bool placed(const DenseTensor& tensor, std::uint64_t bytes) {
    const auto end = checked_add(tensor.offset, bytes);
    if (tensor.bytes == bytes && tensor.offset % kTensorAlignment == 0 && end &&
        *end <= container_.dense_bytes()) {
      return true;
    }
    fail(tensor.name, "at offset " + std::to_string(tensor.offset) + " with " + std::to_string(tensor.bytes) +
                          " bytes, expected " + std::to_string(bytes) +
                          " bytes on a 64-byte boundary within " + std::to_string(container_.dense_bytes()));
    return false;
  }

  void fail(const std::string& name, const std::string& what) {
    if (!status_) return;
    status_ = Status(ErrorCode::corrupt, "dense tensor of the container does not match its spec: " + name +
                                             " is " + what + "; convert the model again");
  }

  const Container& container_;
  const std::byte* memory_;
  Status status_;
};

void bind_attention(Binder& binder, const ModelSpec& spec, const std::string& prefix, bool integers,
                    DenseLayer& layer) {
  const AttentionSpec& attention = spec.attention;
  const std::uint32_t query = attention.query_size();
  const std::uint32_t kv = attention.kv_size();
  const std::uint32_t qkv = query + 2 * kv;
  layer.attention_norm = binder.vector(prefix + "attention_norm.weight", spec.hidden_size);
  layer.ffn_norm = binder.vector(prefix + "ffn_norm.weight", spec.hidden_size);
  layer.qkv = binder.matrix(prefix + "qkv.weight", qkv, spec.hidden_size, integers);
  if (attention.qkv_bias) layer.qkv_bias = binder.vector(prefix + "qkv.bias", qkv);
  layer.attention_output =
      binder.matrix(prefix + "attention_output.weight", spec.hidden_size, query, integers);
  if (attention.output_bias) {
    layer.attention_output_bias = binder.vector(prefix + "attention_output.bias", spec.hidden_size);
  }
  if (attention.qk_norm != QkNorm::none) {
    const bool per_head = attention.qk_norm == QkNorm::per_head;
    layer.q_norm = binder.vector(prefix + "q_norm.weight", per_head ? attention.head_dim : query);
    layer.k_norm = binder.vector(prefix + "k_norm.weight", per_head ? attention.head_dim : kv);
  }
}

void bind_ffn(Binder& binder, const ModelSpec& spec, std::uint32_t index, const std::string& prefix,
              bool integers, DenseLayer& layer) {
  const LayerSpec& layer_spec = spec.layers[index];
  if (!layer_spec.moe) {
    layer.ffn = binder.ffn(prefix + "ffn", spec.hidden_size, layer_spec.dense_intermediate_size, integers);
    return;
  }
  layer.router = binder.matrix(prefix + "router.weight", spec.num_experts, spec.hidden_size, false);
  layer.router_selection_bias = binder.optional_vector(prefix + "router.selection_bias", spec.num_experts);
  if (spec.shared_expert.intermediate_size == 0) return;
  layer.shared =
      binder.ffn(prefix + "shared", spec.hidden_size, spec.shared_expert.intermediate_size, integers);
  if (spec.shared_expert.sigmoid_gate) {
    layer.shared_gate = binder.vector(prefix + "shared_gate.weight", spec.hidden_size);
  }
}

}  // namespace

Result<DenseWeights> bind_dense_weights(const Container& container, const std::byte* memory) {
  const ModelSpec& spec = container.spec();
  const bool integers = kernels::has_integer_weights(spec.weight_dtype);
  Binder binder(container, memory);
  DenseWeights dense;
  dense.embedding = binder.matrix("embedding.weight", spec.vocab_size, spec.hidden_size, false);
  dense.head = spec.tied_head ? dense.embedding
                              : binder.matrix("head.weight", spec.vocab_size, spec.hidden_size, integers);
  dense.final_norm = binder.vector("final_norm.weight", spec.hidden_size);
  dense.layers.resize(spec.num_layers());
  for (std::uint32_t index = 0; index < spec.num_layers(); ++index) {
    const std::string prefix = "layers." + std::to_string(index) + ".";
    bind_attention(binder, spec, prefix, integers, dense.layers[index]);
    bind_ffn(binder, spec, index, prefix, integers, dense.layers[index]);
  }
  COLIBRI_RETURN_IF_ERROR(binder.take_status());
  return dense;
}

}  // namespace colibri
