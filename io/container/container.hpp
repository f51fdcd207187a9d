// Container: a converted model folder, opened for reading.
//
// model_spec.json, model.bin (dense tensors), experts.bin (expert records and page table).
// Opening checks headers, sizes, digests and the tensor and page tables; it reads no weights.
// Immutable and thread-safe after open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/container/model_spec.hpp"
#include "io/status.hpp"
#include "kernels/export.hpp"

namespace colibri {

inline constexpr std::uint32_t kContainerVersion = 1;
inline constexpr std::uint64_t kPageBytes = 4096;

// A dense tensor in model.bin. Names:
//   embedding.weight [vocab, hidden]  head.weight [vocab, hidden] (absent when tied)  final_norm.weight
//   layers.N.attention_norm.weight  layers.N.ffn_norm.weight
//   layers.N.qkv.weight [(heads + 2 kv_heads) * head_dim, hidden], rows q, k, v; layers.N.qkv.bias
//   layers.N.attention_output.weight [hidden, heads * head_dim]; layers.N.attention_output.bias
//   layers.N.q_norm.weight, layers.N.k_norm.weight [head_dim, or the full width]
//   layers.N.ffn.{gate,up,down}.weight (dense layers)
//   layers.N.router.weight [experts, hidden], always f32; layers.N.router.selection_bias [experts]
//   layers.N.shared.{gate,up,down}.weight; layers.N.shared_gate.weight [hidden] vector
// Matrices are packed (kernels/packed_matrix.hpp), vectors are plain f32 (rows == 1, packed false).
struct DenseTensor {
  std::string name;
  bool packed = false;
  kernels::WeightFormat format = kernels::WeightFormat::f32;
  std::uint32_t rows = 0;     // outputs
  std::uint32_t columns = 0;  // inputs
  std::uint64_t offset = 0;   // from the start of the dense payload, 64-byte aligned
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  // xxh3-64 of the bytes
};

// Where one expert record lies. Layer is the model's layer index, not the ordinal among MoE layers.
struct ExpertRecord {
  std::uint32_t file = 0;                       // index into expert_files()
  std::uint64_t offset = 0;                     // 4096-aligned
  std::uint64_t length = 0;                     // record_bytes
  std::span<const std::uint64_t> chunk_hashes;  // xxh3-64 of each chunk of the payload; the last may be short
};

class Container : public std::enable_shared_from_this<Container> {
 public:
  COLIBRI_API static Result<std::shared_ptr<const Container>> open(const std::filesystem::path& folder);

  virtual ~Container() = default;
  virtual const std::filesystem::path& folder() const noexcept = 0;
  virtual const ModelSpec& spec() const noexcept = 0;
  virtual const ExpertLayout& layout() const noexcept = 0;
  virtual std::span<const DenseTensor> dense_tensors() const noexcept = 0;
  virtual const DenseTensor* find(std::string_view name) const noexcept = 0;  // null when absent
  virtual std::uint64_t dense_bytes() const noexcept = 0;                     // payload of model.bin
  // Reads the dense payload into `memory` (dense_bytes, 64-byte aligned) and checks its checksums. `stopping`
  // (may be empty) is asked before each read of a few MiB: true ends it with ErrorCode::cancelled.
  virtual Status read_dense(std::span<std::byte> memory,
                            const std::function<bool()>& stopping = {}) const = 0;
  virtual std::span<const std::filesystem::path> expert_files() const noexcept = 0;
  virtual ExpertRecord record(std::uint32_t layer, std::uint32_t expert) const noexcept = 0;
  virtual std::uint64_t expert_bytes() const noexcept = 0;      // sum of record lengths
  virtual std::uint64_t page_table_bytes() const noexcept = 0;  // memory held by the chunk hashes
  // tokenizer.json of the model, or empty when it has none.
  virtual std::filesystem::path tokenizer_path() const = 0;
  // SHA-256 in hex over model_spec.json and the tables of both .bin files, which hold the checksums of all
  // weights: names the model in journals and state files.
  virtual const std::string& digest() const noexcept = 0;
};

// Re-reads every file and compares all checksums (chunk hashes, hash tree root, SHA-256 of each file).
// `progress` may be empty; it is called with bytes done and bytes in all.
COLIBRI_API Status verify_container(const std::filesystem::path& folder,
                                    const std::function<void(std::uint64_t, std::uint64_t)>& progress);

}  // namespace colibri
