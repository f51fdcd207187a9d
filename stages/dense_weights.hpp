// DenseWeights: the always-resident weights as typed views, one entry per layer.
//
// Binding checks once that every tensor that the spec calls for is there in the right
// shape; the stages then use plain pointers. The views point into the static pool and are
// valid as long as it is.
#pragma once

#include <cstddef>
#include <vector>

#include "io/container/container.hpp"
#include "io/status.hpp"
#include "kernels/packed_matrix.hpp"

namespace colibri {

// A gated FFN: down(silu(gate(x)) * up(x)).
struct FfnMatrices {
  kernels::PackedMatrix gate;  // [intermediate, hidden]
  kernels::PackedMatrix up;    // [intermediate, hidden]
  kernels::PackedMatrix down;  // [hidden, intermediate]
};

struct DenseLayer {
  const float* attention_norm = nullptr;         // [hidden]
  const float* ffn_norm = nullptr;               // [hidden]
  kernels::PackedMatrix qkv;                     // [query_size + 2 * kv_size, hidden]
  const float* qkv_bias = nullptr;               // [query_size + 2 * kv_size] or null
  kernels::PackedMatrix attention_output;        // [hidden, query_size]
  const float* attention_output_bias = nullptr;  // [hidden] or null
  const float* q_norm = nullptr;                 // [head_dim] or [query_size]; null without q/k norm
  const float* k_norm = nullptr;                 // [head_dim] or [kv_size]
  FfnMatrices ffn;                               // dense layers
  // MoE layers.
  kernels::PackedMatrix router;                  // [num_experts, hidden], f32
  const float* router_selection_bias = nullptr;  // [num_experts] or null
  FfnMatrices shared;                            // data null without a shared expert
  const float* shared_gate = nullptr;            // [hidden]; null without a sigmoid gate
};

struct DenseWeights {
  kernels::PackedMatrix embedding;    // [vocab, hidden]
  kernels::PackedMatrix head;         // [vocab, hidden]; the embedding when tied
  const float* final_norm = nullptr;  // [hidden]
  std::vector<DenseLayer> layers;
};

// `memory` holds the container's dense payload (64-byte aligned). A missing, misshapen or misplaced tensor
// is an error that names it. No matrix may hold integers unless the spec says so: the stages size
// their quantised rows by the spec.
Result<DenseWeights> bind_dense_weights(const Container& container, const std::byte* memory);

}  // namespace colibri
