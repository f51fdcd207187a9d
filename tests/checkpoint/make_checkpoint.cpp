// Writing synthetic checkpoints shard by shard.
#include "tests/checkpoint/make_checkpoint.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/container/file_handle.hpp"
#include "io/container/little_endian.hpp"
#include "kernels/number_format.hpp"

namespace colibri::test {
namespace {

constexpr std::size_t kPieceElements = 1U << 20;

struct Tensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::uint64_t elements() const {
    std::uint64_t product = 1;
    for (const std::uint64_t size : shape) product *= size;
    return product;
  }
};

std::vector<Tensor> tensors_of(const SyntheticCheckpoint& shape) {
  const std::uint64_t hidden = shape.hidden_size;
  const std::uint64_t width = shape.intermediate_size;
  const std::uint64_t query = std::uint64_t{shape.num_heads} * shape.head_dim;
  const std::uint64_t kv = std::uint64_t{shape.num_kv_heads} * shape.head_dim;
  std::vector<Tensor> list{{"model.embed_tokens.weight", {shape.vocab_size, hidden}},
                           {"lm_head.weight", {shape.vocab_size, hidden}},
                           {"model.norm.weight", {hidden}}};
  for (std::uint32_t i = 0; i < shape.num_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    list.push_back({layer + "input_layernorm.weight", {hidden}});
    list.push_back({layer + "post_attention_layernorm.weight", {hidden}});
    list.push_back({layer + "self_attn.q_proj.weight", {query, hidden}});
    list.push_back({layer + "self_attn.k_proj.weight", {kv, hidden}});
    list.push_back({layer + "self_attn.v_proj.weight", {kv, hidden}});
    list.push_back({layer + "self_attn.o_proj.weight", {hidden, query}});
    list.push_back({layer + "self_attn.q_norm.weight", {shape.head_dim}});
    list.push_back({layer + "self_attn.k_norm.weight", {shape.head_dim}});
    list.push_back({layer + "mlp.gate.weight", {shape.num_experts, hidden}});
    for (std::uint32_t e = 0; e < shape.num_experts; ++e) {
      const std::string expert = layer + "mlp.experts." + std::to_string(e) + ".";
      list.push_back({expert + "gate_proj.weight", {width, hidden}});
      list.push_back({expert + "up_proj.weight", {width, hidden}});
      list.push_back({expert + "down_proj.weight", {hidden, width}});
    }
  }
  return list;
}

// splitmix64: every element has its own number, whatever the order of writing.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

Status write_values(const FileHandle& file, std::uint64_t offset, const Tensor& tensor, std::uint64_t key) {
  const bool norm = tensor.shape.size() == 1;
  const float range = norm ? 0.0F : std::sqrt(3.0F / static_cast<float>(tensor.shape.back()));
  std::vector<std::uint16_t> piece;
  for (std::uint64_t done = 0; done < tensor.elements(); done += piece.size()) {
    piece.resize(std::min<std::uint64_t>(kPieceElements, tensor.elements() - done));
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const float unit = static_cast<float>(mix(key + done + i) >> 40) / static_cast<float>(1 << 23) - 1.0F;
      piece[i] = kernels::f32_to_bf16(norm ? 1.0F : unit * range);
    }
    COLIBRI_RETURN_IF_ERROR(file.write_at(offset + done * 2, std::as_bytes(std::span(piece))));
  }
  return Status::ok();
}

Status write_shard(const std::filesystem::path& path, std::span<const Tensor> tensors, std::uint64_t seed) {
  nlohmann::ordered_json header;
  std::uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    const std::uint64_t bytes = tensor.elements() * 2;
    header[tensor.name] = {{"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  const std::string text = header.dump();
  std::vector<std::byte> start;
  append_little_endian(start, static_cast<std::uint64_t>(text.size()));
  const auto text_bytes = std::as_bytes(std::span(text));
  start.insert(start.end(), text_bytes.begin(), text_bytes.end());
  COLIBRI_ASSIGN_OR_RETURN(const FileHandle file, FileHandle::open_for_writing(path));
  COLIBRI_RETURN_IF_ERROR(file.write_at(0, start));
  std::uint64_t offset = start.size();
  for (const Tensor& tensor : tensors) {
    const std::uint64_t key = mix(seed ^ std::hash<std::string>()(tensor.name));
    COLIBRI_RETURN_IF_ERROR(write_values(file, offset, tensor, key));
    offset += tensor.elements() * 2;
  }
  return Status::ok();
}

}  // namespace

Status write_synthetic_checkpoint(const std::filesystem::path& folder, const SyntheticCheckpoint& shape) {
  std::filesystem::create_directories(folder);
  const nlohmann::json config = {
      {"model_type", "qwen3_moe"},
      {"hidden_size", shape.hidden_size},
      {"moe_intermediate_size", shape.intermediate_size},
      {"num_hidden_layers", shape.num_layers},
      {"num_experts", shape.num_experts},
      {"num_experts_per_tok", shape.num_experts_per_token},
      {"num_attention_heads", shape.num_heads},
      {"num_key_value_heads", shape.num_kv_heads},
      {"head_dim", shape.head_dim},
      {"vocab_size", shape.vocab_size},
      {"max_position_embeddings", 4096},
      {"rms_norm_eps", 1e-6},
      {"rope_theta", 1e6},
      {"norm_topk_prob", true},
      {"attention_bias", false},
      {"eos_token_id", 0},
      {"torch_dtype", "bfloat16"},
  };
  COLIBRI_RETURN_IF_ERROR(write_text_file(folder / "config.json", config.dump(2)));
  const std::vector<Tensor> tensors = tensors_of(shape);
  if (shape.num_shards <= 1) return write_shard(folder / "model.safetensors", tensors, shape.seed);

  nlohmann::json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", nlohmann::json::object()}};
  for (std::uint32_t i = 0; i < shape.num_shards; ++i) {
    char name[64];
    std::snprintf(name, sizeof(name), "model-%05u-of-%05u.safetensors", i + 1, shape.num_shards);
    const std::size_t begin = tensors.size() * i / shape.num_shards;
    const std::size_t end = tensors.size() * (i + 1) / shape.num_shards;
    const auto part = std::span(tensors).subspan(begin, end - begin);
    for (const Tensor& tensor : part) index["weight_map"][tensor.name] = name;
    COLIBRI_RETURN_IF_ERROR(write_shard(folder / name, part, shape.seed));
  }
  return write_text_file(folder / "model.safetensors.index.json", index.dump());
}

}  // namespace colibri::test
