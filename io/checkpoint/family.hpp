// The table of model families: adding one means adding a row.
//
// A row says which keys of config.json hold what, which form router, attention and FFN have, and
// what the tensors are called. No other file asks for a family by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/container/model_spec.hpp"

namespace colibri {

// Which layers see a window of positions only. Versions of transformers disagree about the Qwen rows
// when a window is in use: see model_config.cpp for what is accepted.
enum class WindowRule : std::uint8_t {
  none,         // the key is not part of the family
  every_layer,  // `sliding_window` alone
  qwen_switch,  // `sliding_window` counts only if `use_sliding_window` is true
};

// One tensor of a layer, or of the model when the name has no layer: the slot it fills (names of
// io/container/container.hpp) and its parts in the checkpoint, stacked along the rows.
struct TensorNames {
  std::string_view slot;
  std::string_view parts[3];  // unused ones are empty
};

// How the router and the routed experts of a layer are called. {e} is the expert.
struct ExpertNames {
  std::string_view router;
  std::string_view gate;  // with `fused`: [experts, 2 * width, hidden], gate rows first
  std::string_view up;    // with `fused`: the same tensor
  std::string_view down;  // with `fused`: [experts, hidden, width]
  bool fused = false;
};

struct FamilyRow {
  std::string_view model_type;
  // Keys of config.json; an empty one means that the family has no such thing.
  std::string_view expert_width_key;
  std::string_view dense_width_key;  // width of layers without experts (mlp_only_layers, decoder_sparse_step)
  std::string_view shared_width_key;  // width of the shared expert, which has a sigmoid gate
  std::string_view qkv_bias_key;
  bool qkv_bias_default = false;  // when the key is absent
  bool qkv_bias_covers_output = false;
  std::string_view renormalise_key;  // empty: weights of the picked experts always sum to 1
  bool renormalise_default = false;  // when the key is absent: the class default of transformers
  std::string_view clip_key;
  QkNorm qk_norm = QkNorm::none;
  std::string_view qk_norm_key;  // some files say that there is the norm; they must say true
  WindowRule window = WindowRule::none;
  std::span<const std::string_view> ignored_keys;  // of config.json; these change nothing at inference
  std::span<const TensorNames> tensors;
  std::span<const ExpertNames> expert_names;  // alternatives; the first is the hub's
};

std::span<const FamilyRow> families() noexcept;
// Null when there is no such row.
const FamilyRow* find_family(std::string_view model_type) noexcept;
// "mixtral, olmoe, ..."
std::string supported_families();

// Checkpoint names start with this and the number of the layer.
inline constexpr std::string_view kLayerPrefix = "model.layers.";

// Tensors that are left out and counted: layers of multi-token prediction (index >= num_layers, or under
// `mtp.`) and stored rope tables.
bool is_ignorable_tensor(std::string_view name, std::uint32_t num_layers) noexcept;

}  // namespace colibri
