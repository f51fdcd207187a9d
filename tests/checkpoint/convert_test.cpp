// Conversion of every golden: each weight of the container against the checkpoint.
#include "io/checkpoint/convert.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "io/checkpoint/checkpoint_folder.hpp"
#include "io/container/container.hpp"
#include "io/container/file_handle.hpp"
#include "tests/checkpoint/temporary_folder.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;
using kernels::WeightFormat;
using test::TemporaryFolder;

const std::string kGolden = std::string(COLIBRI_TEST_DATA) + "/golden/";
constexpr const char* kFolders[] = {
    "qwen3_moe",     "qwen3_moe_tied", "qwen3_moe_sharded",  "qwen3_moe_fused", "qwen3_moe_odd",
    "qwen3_moe_f16", "qwen3_moe_yarn", "qwen2_moe",          "qwen2_moe_step2", "mixtral",
    "mixtral_fused", "mixtral_sw",     "mixtral_llama3rope", "olmoe",           "olmoe_f32"};

Result<ConvertReport> convert(const fs::path& from, const fs::path& to, const std::string& weights = "auto",
                              std::uint32_t chunk = 4096) {
  ConvertOptions options;
  options.weights = weights;
  options.chunk_bytes = chunk;
  return convert_checkpoint(from, to, options);
}

// A container with its dense weights and single records in memory, and its checkpoint.
class Converted {
 public:
  Converted(const fs::path& checkpoint_path, const fs::path& container_path)
      : checkpoint_(CheckpointFolder::open(checkpoint_path).value()),
        container_(*Container::open(container_path)) {
    dense_.resize(container_->dense_bytes());
    EXPECT_TRUE(container_->read_dense(dense_));
  }
  const Container& container() const { return *container_; }
  const ModelSpec& spec() const { return container_->spec(); }

  std::vector<float> source(const std::string& name) const {
    const StoredTensor stored = checkpoint_.find(name);
    EXPECT_NE(stored.file, nullptr) << name;
    return stored.file == nullptr ? std::vector<float>() : *stored.file->read_f32(name);
  }
  bool has_source(const std::string& name) const { return checkpoint_.find(name).file != nullptr; }

  static std::vector<float> unpack(const kernels::PackedMatrix& matrix) {
    std::vector<float> values(std::size_t{matrix.outputs} * matrix.inputs);
    for (std::uint32_t row = 0; row < matrix.outputs; ++row) {
      kernels::unpack_row(matrix, row, values.data() + std::size_t{row} * matrix.inputs);
    }
    return values;
  }
  std::vector<float> dense(const std::string& name) const {
    const DenseTensor* tensor = container_->find(name);
    EXPECT_NE(tensor, nullptr) << name;
    if (tensor == nullptr) return {};
    const std::byte* data = dense_.data() + tensor->offset;
    if (tensor->packed) return unpack({tensor->format, tensor->rows, tensor->columns, data});
    std::vector<float> values(tensor->columns);
    std::memcpy(values.data(), data, values.size() * sizeof(float));
    return values;
  }
  ExpertMatrices expert(std::uint32_t layer, std::uint32_t id) {
    const ExpertRecord record = container_->record(layer, id);
    record_.resize(record.length);
    const auto file = FileHandle::open_for_reading(container_->expert_files()[record.file]);
    EXPECT_TRUE(file->read_at(record.offset, record_));
    return expert_matrices(container_->layout(), record_.data());
  }

 private:
  CheckpointFolder checkpoint_;
  std::shared_ptr<const Container> container_;
  std::vector<std::byte> dense_;
  std::vector<std::byte> record_;
};

// Equal to the bit, or for int8 within half a step of the group's scale. For int4 the rule is tested with the
// kernels: here within what a group of one step more on one side may be off.
void expect_matrix(const std::vector<float>& found, const std::vector<float>& expected, std::size_t columns,
                   WeightFormat format, const std::string& name) {
  ASSERT_EQ(found.size(), expected.size()) << name;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!kernels::has_integer_weights(format)) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected[i]))
          << name << " " << i;
      continue;
    }
    const std::size_t row = i / columns * columns;
    const std::size_t size = format == WeightFormat::int8_g64 ? 64 : 32;
    const std::size_t group = row + (i - row) / size * size;
    float largest = 0.0F;
    for (std::size_t k = group; k < std::min(group + size, row + columns); ++k) {
      largest = std::max(largest, std::fabs(expected[k]));
    }
    const float most = format == WeightFormat::int8_g64 ? largest / 127.0F * 0.5001F : largest / 8.5F * 1.6F;
    ASSERT_LE(std::fabs(found[i] - expected[i]), most) << name << " " << i;
  }
}

std::vector<float> slice(const std::vector<float>& values, std::size_t first, std::size_t count) {
  return {values.begin() + static_cast<std::ptrdiff_t>(first),
          values.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

std::vector<float> joined(std::initializer_list<std::vector<float>> parts) {
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// gate, up, down of an expert, under whichever names the folder has.
std::array<std::vector<float>, 3> expert_source(const Converted& model, const std::string& layer,
                                                std::uint32_t e) {
  const std::string id = std::to_string(e);
  if (model.has_source(layer + "mlp.experts.gate_up_proj")) {
    const std::size_t half = std::size_t{model.spec().intermediate_size} * model.spec().hidden_size;
    const auto gate_up = model.source(layer + "mlp.experts.gate_up_proj");
    return {slice(gate_up, e * 2 * half, half), slice(gate_up, e * 2 * half + half, half),
            slice(model.source(layer + "mlp.experts.down_proj"), e * half, half)};
  }
  if (model.has_source(layer + "block_sparse_moe.gate.weight")) {
    const std::string prefix = layer + "block_sparse_moe.experts." + id;
    return {model.source(prefix + ".w1.weight"), model.source(prefix + ".w3.weight"),
            model.source(prefix + ".w2.weight")};
  }
  const std::string prefix = layer + "mlp.experts." + id;
  return {model.source(prefix + ".gate_proj.weight"), model.source(prefix + ".up_proj.weight"),
          model.source(prefix + ".down_proj.weight")};
}

void expect_all_weights(Converted& model) {
  const ModelSpec& spec = model.spec();
  const auto expect_dense = [&](const std::string& slot, const std::vector<float>& source) {
    const DenseTensor* tensor = model.container().find(slot);
    ASSERT_NE(tensor, nullptr) << slot;
    expect_matrix(model.dense(slot), source, tensor->columns, tensor->format, slot);
  };
  expect_dense("embedding.weight", model.source("model.embed_tokens.weight"));
  expect_dense("final_norm.weight", model.source("model.norm.weight"));
  if (!spec.tied_head) {
    const bool stored = model.has_source("lm_head.weight");
    expect_dense("head.weight", model.source(stored ? "lm_head.weight" : "model.embed_tokens.weight"));
  }
  for (std::uint32_t i = 0; i < spec.num_layers(); ++i) {
    const std::string slot = "layers." + std::to_string(i) + ".";
    const std::string name = "model.layers." + std::to_string(i) + ".";
    const std::string attention = name + "self_attn.";
    expect_dense(slot + "attention_norm.weight", model.source(name + "input_layernorm.weight"));
    expect_dense(slot + "ffn_norm.weight", model.source(name + "post_attention_layernorm.weight"));
    expect_dense(slot + "qkv.weight",
                 joined({model.source(attention + "q_proj.weight"), model.source(attention + "k_proj.weight"),
                         model.source(attention + "v_proj.weight")}));
    expect_dense(slot + "attention_output.weight", model.source(attention + "o_proj.weight"));
    if (model.has_source(attention + "q_proj.bias")) {
      expect_dense(slot + "qkv.bias",
                   joined({model.source(attention + "q_proj.bias"), model.source(attention + "k_proj.bias"),
                           model.source(attention + "v_proj.bias")}));
    }
    if (model.has_source(attention + "q_norm.weight")) {
      expect_dense(slot + "q_norm.weight", model.source(attention + "q_norm.weight"));
      expect_dense(slot + "k_norm.weight", model.source(attention + "k_norm.weight"));
    }
    if (!spec.layers[i].moe) {
      for (const std::string part : {"gate", "up", "down"}) {
        expect_dense(slot + "ffn." + part + ".weight", model.source(name + "mlp." + part + "_proj.weight"));
      }
      continue;
    }
    const bool mixtral = model.has_source(name + "block_sparse_moe.gate.weight");
    EXPECT_EQ(model.container().find(slot + "router.weight")->format, WeightFormat::f32);
    expect_dense(slot + "router.weight",
                 model.source(name + (mixtral ? "block_sparse_moe" : "mlp") + ".gate.weight"));
    if (model.has_source(name + "mlp.shared_expert_gate.weight")) {
      expect_dense(slot + "shared_gate.weight", model.source(name + "mlp.shared_expert_gate.weight"));
      for (const std::string part : {"gate", "up", "down"}) {
        expect_dense(slot + "shared." + part + ".weight",
                     model.source(name + "mlp.shared_expert." + part + "_proj.weight"));
      }
    }
    for (std::uint32_t e = 0; e < spec.num_experts; ++e) {
      const auto source = expert_source(model, name, e);
      const ExpertMatrices found = model.expert(i, e);
      const std::string where = slot + "expert " + std::to_string(e);
      expect_matrix(Converted::unpack(found.gate), source[0], spec.hidden_size, found.gate.format,
                    where + " gate");
      expect_matrix(Converted::unpack(found.up), source[1], spec.hidden_size, found.up.format, where + " up");
      expect_matrix(Converted::unpack(found.down), source[2], spec.intermediate_size, found.down.format,
                    where + " down");
    }
  }
}

class GoldenConversion : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(GoldenConversion, KeepsEveryWeight) {
  const auto [name, weights] = GetParam();
  const TemporaryFolder folder;
  const auto report = convert(kGolden + name, folder / "out", weights);
  ASSERT_TRUE(report) << report.status().to_string();
  Converted model(kGolden + name, folder / "out");
  expect_all_weights(model);
  EXPECT_TRUE(verify_container(folder / "out", {}));
  EXPECT_FALSE(fs::exists(folder / "out/convert.partial"));

  const bool stored_bf16 = std::string(name) != "qwen3_moe_f16" && std::string(name) != "olmoe_f32";
  const WeightFormat expected = std::string(weights) == "int8"                  ? WeightFormat::int8_g64
                                : std::string(weights) == "int4"                ? WeightFormat::int4_g32
                                : std::string(weights) == "f32" || !stored_bf16 ? WeightFormat::f32
                                                                                : WeightFormat::bf16;
  EXPECT_EQ(model.spec().weight_dtype, expected);
  EXPECT_EQ(model.spec().embedding_dtype, stored_bf16 ? WeightFormat::bf16 : WeightFormat::f32);
  EXPECT_EQ(model.container().find("layers.0.qkv.weight")->format, expected);
  // A tied head shares the embedding only if it has the same format.
  const bool tied = std::string(name) == "qwen3_moe_tied" && expected == WeightFormat::bf16;
  EXPECT_EQ(model.spec().tied_head, tied);
  EXPECT_EQ(model.container().find("head.weight") == nullptr, tied);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenConversion,
                         ::testing::Combine(::testing::ValuesIn(kFolders),
                                            ::testing::Values("auto", "f32", "int8", "int4")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

TEST(Conversion, RoundsToBf16WhenAsked) {
  const TemporaryFolder folder;
  ASSERT_TRUE(convert(kGolden + "olmoe_f32", folder / "out", "bf16"));
  Converted model(kGolden + "olmoe_f32", folder / "out");
  EXPECT_EQ(model.spec().weight_dtype, WeightFormat::bf16);
  EXPECT_EQ(model.spec().embedding_dtype, WeightFormat::f32);
  const auto source = model.source("model.layers.1.mlp.experts.3.up_proj.weight");
  const auto found = Converted::unpack(model.expert(1, 3).up);
  for (std::size_t i = 0; i < source.size(); ++i) {
    // Nearest: half a unit in the last of 8 bits.
    ASSERT_LE(std::fabs(found[i] - source[i]), std::fabs(source[i]) / 256.0F) << i;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]) & 0xffffU, 0u);
  }
}

TEST(Conversion, BothConfigStylesGiveTheSameFiles) {
  const TemporaryFolder folder;
  for (const char* name : kFolders) {
    test::copy_folder(kGolden + name, folder / name);
    fs::rename(folder / (std::string(name) + "/config_v4.json"),
               folder / (std::string(name) + "/config.json"));
    ASSERT_TRUE(convert(kGolden + name, folder / "v5")) << name;
    ASSERT_TRUE(convert(folder / name, folder / "v4")) << name;
    EXPECT_EQ(test::read_file(folder / "v5/manifest.json"), test::read_file(folder / "v4/manifest.json"))
        << name;
    fs::remove_all(folder / "v5");
    fs::remove_all(folder / "v4");
  }
}

TEST(Conversion, FusedAndSingleExpertsGiveTheSameRecords) {
  const TemporaryFolder folder;
  for (const char* name : {"qwen3_moe", "mixtral"}) {
    const std::string single = std::string(name) + "_single";
    const std::string fused = std::string(name) + "_fused";
    ASSERT_TRUE(convert(kGolden + fused, folder / fused));
    // The goldens hold different weights: fuse those of the single one and convert them again.
    test::copy_folder(kGolden + name, folder / "refused");
    const auto source = CheckpointFolder::open(kGolden + name);
    ASSERT_TRUE(source);
    SafetensorsWriter writer;
    std::map<std::string, std::array<std::vector<float>, 2>> stacks;  // layer -> gate_up, down
    ASSERT_TRUE(convert(kGolden + name, folder / single, "f32"));
    Converted model(kGolden + name, folder / single);
    const std::uint64_t hidden = model.spec().hidden_size;
    const std::uint64_t width = model.spec().intermediate_size;
    const std::uint64_t experts = model.spec().num_experts;
    for (const TensorInfo& tensor : source->shards()[0].tensors()) {
      if (tensor.name.find(".experts.") != std::string::npos) continue;
      std::string renamed = tensor.name;
      if (const auto at = renamed.find("block_sparse_moe"); at != std::string::npos)
        renamed.replace(at, 16, "mlp");
      writer.add(renamed, tensor.shape, model.source(tensor.name));
    }
    for (std::uint32_t layer = 0; layer < model.spec().num_layers(); ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      std::vector<float> gate_up;
      std::vector<float> down;
      for (std::uint32_t e = 0; e < experts; ++e) {
        const auto parts = expert_source(model, prefix, e);
        gate_up = joined({gate_up, parts[0], parts[1]});
        down = joined({down, parts[2]});
      }
      writer.add(prefix + "mlp.experts.gate_up_proj", {experts, 2 * width, hidden}, gate_up);
      writer.add(prefix + "mlp.experts.down_proj", {experts, hidden, width}, down);
    }
    ASSERT_TRUE(writer.write(folder / "refused/model.safetensors"));
    ASSERT_TRUE(convert(folder / "refused", folder / "again", "f32"));
    const auto records = [&](const std::string& out) {
      const std::string bytes = test::read_file(folder / (out + "/experts.bin"));
      return bytes.substr(4096, model.container().expert_bytes());
    };
    EXPECT_EQ(records("again"), records(single)) << name;
    fs::remove_all(folder / "refused");
    fs::remove_all(folder / "again");
  }
}

TEST(Conversion, CopiesTokenizerFiles) {
  const TemporaryFolder folder;
  const std::string demo = std::string(COLIBRI_TEST_DATA) + "/../configs/demo/checkpoint";
  ASSERT_TRUE(convert(demo, folder / "out", "auto", 128 * 1024));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    EXPECT_EQ(test::read_file(folder / (std::string("out/") + name)), test::read_file(demo + "/" + name))
        << name;
  }
  const auto container = Container::open(folder / "out");
  ASSERT_TRUE(container);
  EXPECT_EQ((*container)->tokenizer_path(), folder / "out/tokenizer.json");
  EXPECT_TRUE((*container)->spec().tied_head);
  EXPECT_EQ((*container)->spec().stop_tokens, std::vector<std::int32_t>{4093});
}

}  // namespace
}  // namespace colibri
