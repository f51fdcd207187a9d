// A small random model without experts' weights, for tests of the dense stages: its spec,
// its packed weights, a container that names them, and the memory of steps and KV pages.
// MoE layers are layers whose MoE block adds nothing.
#pragma once

#include <colibri/services.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stages/dense_weights.hpp"

namespace colibri::testing {

// Row-major values of a tensor as the model means them (after rounding to its format).
struct Tensor {
  std::uint32_t rows = 0, columns = 0;
  bool packed = false;
  std::vector<float> values;
};

class DenseModel final : public Container {
 public:
  // Fills weights of all tensors that `spec` calls for from `seed`.
  DenseModel(ModelSpec spec, std::uint64_t seed);

  const std::filesystem::path& folder() const noexcept override { return folder_; }
  const ModelSpec& spec() const noexcept override { return spec_; }
  const ExpertLayout& layout() const noexcept override { return layout_; }
  std::span<const DenseTensor> dense_tensors() const noexcept override { return tensors_; }
  const DenseTensor* find(std::string_view name) const noexcept override;
  std::uint64_t dense_bytes() const noexcept override { return bytes_; }
  Status read_dense(std::span<std::byte>, const std::function<bool()>&) const override { return {}; }
  std::span<const std::filesystem::path> expert_files() const noexcept override { return {}; }
  ExpertRecord record(std::uint32_t, std::uint32_t) const noexcept override { return {}; }
  std::uint64_t expert_bytes() const noexcept override { return 0; }
  std::uint64_t page_table_bytes() const noexcept override { return 0; }
  std::filesystem::path tokenizer_path() const override { return {}; }
  const std::string& digest() const noexcept override { return digest_; }

  const Tensor& tensor(const std::string& name) const { return values_.at(name); }
  // Replaces a tensor's values; [rows, columns] must match.
  void set(const std::string& name, std::vector<float> values);
  Result<DenseWeights> bind() const { return bind_dense_weights(*this, memory_.get()); }

  ModelSpec spec_;
  std::vector<DenseTensor> tensors_;  // tests break them on purpose

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  void add(const std::string& name, bool packed, kernels::WeightFormat format, std::uint32_t rows,
           std::uint32_t columns);
  void store(const DenseTensor& tensor, Tensor& values);

  std::map<std::string, Tensor> values_;
  std::unique_ptr<std::byte, Free> memory_;
  std::uint64_t bytes_ = 0;
  std::filesystem::path folder_;
  ExpertLayout layout_;
  std::string digest_;
};

// A dense spec with sensible sizes; `layers` says which are MoE.
ModelSpec small_spec(const std::vector<bool>& moe_layers);

// Steps, KV pages and services over a model.
struct DenseJob {
  DenseJob(const DenseModel& model, std::uint32_t max_rows, std::uint32_t wave_rows, std::uint32_t in_flight,
           std::uint32_t kv_pages, kernels::KvFormat format = kernels::KvFormat::f32);

  DenseWeights dense;
  Services services;

 private:
  struct StepArrays {
    std::vector<Wave> waves;
    std::vector<Sequence*> sequences;
    std::vector<std::int32_t> tokens;
    std::vector<std::uint32_t> positions;
    std::vector<std::uint8_t> flags;
    std::vector<Status> row_status;
    std::vector<float> residual;
  };
  std::vector<StepArrays> arrays_;
  std::vector<Step> steps_;
  std::vector<float> kv_;
};

}  // namespace colibri::testing
