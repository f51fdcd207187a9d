// Binding of dense tensors: everything is found, and what is wrong is named.
#include <gtest/gtest.h>

#include "dense_model.hpp"

namespace colibri::testing {
namespace {

ModelSpec full_spec() {
  ModelSpec spec = small_spec({true, false});
  spec.attention.qkv_bias = spec.attention.output_bias = true;
  spec.attention.qk_norm = QkNorm::per_head;
  spec.shared_expert = {24, true};
  return spec;
}

TEST(DenseWeights, BindsWhatTheSpecCallsFor) {
  const DenseModel model(full_spec(), 1);
  const DenseWeights dense = std::move(model.bind()).value();
  ASSERT_EQ(dense.layers.size(), 2U);
  EXPECT_EQ(dense.layers[0].router.outputs, 4U);
  EXPECT_EQ(dense.layers[0].shared.down.inputs, 24U);
  EXPECT_EQ(dense.layers[0].router_selection_bias, nullptr);
  EXPECT_EQ(dense.layers[0].ffn.gate.data, nullptr);
  EXPECT_EQ(dense.layers[1].ffn.gate.outputs, 72U);
  EXPECT_EQ(dense.layers[1].shared_gate, nullptr);
  EXPECT_EQ(dense.layers[0].q_norm[3], model.tensor("layers.0.q_norm.weight").values[3]);
  EXPECT_NE(dense.head.data, dense.embedding.data);
  std::vector<float> row(48);
  kernels::unpack_row(dense.layers[1].qkv, 7, row.data());
  const std::vector<float>& values = model.tensor("layers.1.qkv.weight").values;
  EXPECT_EQ(row, std::vector<float>(values.begin() + 7 * 48, values.begin() + 8 * 48));
}

TEST(DenseWeights, ATiedHeadIsTheEmbedding) {
  ModelSpec spec = small_spec({true});
  spec.tied_head = true;
  const DenseModel model(spec, 1);
  const DenseWeights dense = std::move(model.bind()).value();
  EXPECT_EQ(dense.head.data, dense.embedding.data);
}

TEST(DenseWeights, NamesTheTensorThatIsMissing) {
  const DenseModel whole(full_spec(), 1);
  for (const DenseTensor& tensor : whole.dense_tensors()) {
    DenseModel model(full_spec(), 1);
    std::erase_if(model.tensors_, [&](const DenseTensor& t) { return t.name == tensor.name; });
    const auto result = model.bind();
    ASSERT_FALSE(result) << tensor.name;
    EXPECT_EQ(result.status().code(), ErrorCode::corrupt);
    EXPECT_NE(result.status().message().find(tensor.name + " is missing"), std::string::npos)
        << result.status().message();
  }
}

TEST(DenseWeights, NamesTheTensorThatIsMisshapenOrMisplaced) {
  using Change = void (*)(DenseTensor&);
  const Change changes[] = {
      [](DenseTensor& t) { t.rows += 1; },          [](DenseTensor& t) { t.columns -= 1; },
      [](DenseTensor& t) { t.packed = !t.packed; }, [](DenseTensor& t) { t.bytes -= 4; },
      [](DenseTensor& t) { t.offset += 4; },        [](DenseTensor& t) { t.offset = ~std::uint64_t{63}; },
  };
  const std::size_t count = DenseModel(full_spec(), 1).tensors_.size();
  for (std::size_t i = 0; i < count; ++i) {
    for (const Change change : changes) {
      DenseModel model(full_spec(), 1);
      change(model.tensors_[i]);
      const auto result = model.bind();
      ASSERT_FALSE(result) << model.tensors_[i].name;
      EXPECT_NE(result.status().message().find(model.tensors_[i].name), std::string::npos)
          << result.status().message();
    }
  }
}

TEST(DenseWeights, RefusesInt8WhereTheSpecHasNone) {
  DenseModel model(full_spec(), 1);
  for (DenseTensor& tensor : model.tensors_) {
    if (tensor.name == "layers.0.qkv.weight") tensor.format = kernels::WeightFormat::int8_g64;
  }
  const auto result = model.bind();
  ASSERT_FALSE(result);
  EXPECT_NE(result.status().message().find("int8_g64"), std::string::npos) << result.status().message();
}

}  // namespace
}  // namespace colibri::testing
