// Checkpoints that do not fit their config, damaged folders and wrong options: each named, nothing written.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "io/checkpoint/convert.hpp"
#include "io/checkpoint/safetensors.hpp"
#include "io/container/container.hpp"
#include "tests/checkpoint/temporary_folder.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

const std::string kGolden = std::string(COLIBRI_TEST_DATA) + "/golden/";

Result<ConvertReport> convert(const fs::path& from, const fs::path& to, const std::string& weights = "auto",
                              std::uint32_t chunk = 4096) {
  ConvertOptions options;
  options.weights = weights;
  options.chunk_bytes = chunk;
  return convert_checkpoint(from, to, options);
}

TEST(UnusualCheckpoint, FollowsLinksAndNamesDanglingOnes) {
  const TemporaryFolder folder;
  const fs::path snapshot = folder / "snapshot";
  fs::create_directories(snapshot);
  fs::create_directories(folder / "blobs");
  int blob = 0;
  for (const auto& entry : fs::directory_iterator(kGolden + "qwen3_moe_sharded")) {
    const std::string name = std::to_string(blob++);
    test::write_file(folder / ("blobs/" + name), test::read_file(entry.path()));
    fs::create_symlink("../blobs/" + name, snapshot / entry.path().filename());
  }
  ASSERT_TRUE(convert(snapshot, folder / "out"));
  const fs::path shard = snapshot / "model-00002-of-00003.safetensors";
  const fs::path target = fs::read_symlink(shard);
  fs::remove(snapshot / target);
  const auto report = convert(snapshot, folder / "out2");
  ASSERT_FALSE(report);
  EXPECT_NE(report.status().to_string().find(shard.string() + " -> " + target.string()), std::string::npos)
      << report.status().to_string();
  EXPECT_FALSE(fs::exists(folder / "out2"));
}

// A checkpoint folder whose single file is rewritten tensor by tensor (as f32).
class Rewritten {
 public:
  explicit Rewritten(const std::string& golden) {
    test::copy_folder(kGolden + golden, folder_ / "checkpoint");
    const auto file = SafetensorsFile::open(kGolden + golden + "/model.safetensors");
    for (const TensorInfo& tensor : file->tensors()) {
      tensors_[tensor.name] = {tensor.shape, *file->read_f32(tensor.name)};
    }
  }
  struct Tensor {
    std::vector<std::uint64_t> shape;
    std::vector<float> values;
  };
  std::map<std::string, Tensor>& tensors() { return tensors_; }
  void add(const std::string& name, const std::vector<std::uint64_t>& shape, float value) {
    std::uint64_t elements = 1;
    for (const std::uint64_t size : shape) elements *= size;
    tensors_[name] = {shape, std::vector<float>(elements, value)};
  }
  fs::path checkpoint() const { return folder_ / "checkpoint"; }
  fs::path out() const { return folder_ / "out"; }
  Result<ConvertReport> convert_now() {
    SafetensorsWriter writer;
    for (const auto& [name, tensor] : tensors_) writer.add(name, tensor.shape, tensor.values);
    EXPECT_TRUE(writer.write(checkpoint() / "model.safetensors"));
    return convert(checkpoint(), out());
  }

 private:
  TemporaryFolder folder_;
  std::map<std::string, Tensor> tensors_;
};

TEST(RefusedCheckpoint, NamesEveryTensorThatDoesNotFit) {
  Rewritten model("qwen3_moe");
  model.tensors().erase("model.layers.1.mlp.experts.7.up_proj.weight");
  model.tensors().erase("model.layers.2.self_attn.k_norm.weight");
  model.add("model.layers.0.mlp.experts.12.up_proj.weight", {48, 64}, 0.0F);
  model.add("visual.patch_embed.weight", {2}, 0.0F);
  model.add("lm_head.weight", {383, 64}, 0.0F);
  const auto report = model.convert_now();
  ASSERT_FALSE(report);
  const std::string message = report.status().to_string();
  for (const char* part : {"missing model.layers.1.mlp.experts.7.up_proj.weight [48, 64]",
                           "missing model.layers.2.self_attn.k_norm.weight [32]",
                           "unexpected model.layers.0.mlp.experts.12.up_proj.weight [48, 64]",
                           "unexpected visual.patch_embed.weight [2]",
                           "lm_head.weight, expected [384, 64], found [383, 64]", "5 problems"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
  EXPECT_FALSE(fs::exists(model.out()));
}

TEST(RefusedCheckpoint, CapsALongList) {
  Rewritten model("qwen3_moe");
  for (int i = 0; i < 100; ++i) model.add("extra." + std::to_string(i), {1}, 0.0F);
  const std::string message = model.convert_now().status().to_string();
  EXPECT_NE(message.find("100 problems"), std::string::npos) << message;
  EXPECT_NE(message.find("and 80 more"), std::string::npos) << message;
}

TEST(UnusualCheckpoint, IgnoresAndCountsPredictionLayers) {
  Rewritten model("qwen3_moe");
  model.add("model.layers.3.eh_proj.weight", {64, 128}, 0.0F);  // the model has layers 0 to 2
  model.add("model.layers.61.mlp.gate.weight", {4}, 0.0F);
  model.add("mtp.fc.weight", {3}, 0.0F);
  const auto report = model.convert_now();
  ASSERT_TRUE(report) << report.status().to_string();
  EXPECT_EQ(report->ignored_tensors, 3u);
  EXPECT_EQ((*Container::open(model.out()))->spec().ignored_tensors, 3u);
}

TEST(UnusualCheckpoint, TiedHeadInTheFileMustBeTheEmbedding) {
  Rewritten model("qwen3_moe_tied");
  model.tensors()["lm_head.weight"] = model.tensors()["model.embed_tokens.weight"];
  const auto same = model.convert_now();
  ASSERT_TRUE(same) << same.status().to_string();
  EXPECT_EQ(same->ignored_tensors, 1u);
  fs::remove_all(model.out());
  model.tensors()["lm_head.weight"].values[5] += 1.0F;
  const auto different = model.convert_now();
  ASSERT_FALSE(different);
  EXPECT_NE(different.status().to_string().find("lm_head.weight differs"), std::string::npos);
}

TEST(RefusedCheckpoint, NotFiniteWeightsAreNamed) {
  const struct {
    const char* tensor;
    std::size_t index;
    float value;
    const char* part;
  } cases[] = {
      {"model.layers.1.mlp.gate.weight", 64 * 2 + 17, std::nanf(""),
       "model.layers.1.mlp.gate.weight[2, 17] is NaN"},
      {"model.norm.weight", 3, INFINITY, "model.norm.weight[3] is infinite"},
      {"model.layers.0.mlp.experts.4.down_proj.weight", 0, -INFINITY, "down_proj.weight[0, 0] is infinite"},
  };
  for (const auto& bad : cases) {
    Rewritten model("qwen3_moe");
    model.tensors()[bad.tensor].values[bad.index] = bad.value;
    const auto report = model.convert_now();
    ASSERT_FALSE(report);
    EXPECT_NE(report.status().to_string().find(bad.part), std::string::npos) << report.status().to_string();
    EXPECT_FALSE(fs::exists(model.out()));  // nothing that another run could use
  }
}

TEST(RefusedCheckpoint, IndexAndShardsMustAgree) {
  const auto broken = [](const std::function<void(nlohmann::json&, const fs::path&)>& damage) {
    const TemporaryFolder folder;
    test::copy_folder(kGolden + "qwen3_moe_sharded", folder / "c");
    const fs::path index_path = folder / "c/model.safetensors.index.json";
    nlohmann::json index = nlohmann::json::parse(test::read_file(index_path));
    damage(index, folder / "c");
    test::write_file(index_path, index.dump());
    const auto report = convert(folder / "c", folder / "out");
    EXPECT_FALSE(report);
    EXPECT_FALSE(fs::exists(folder / "out"));
    return report ? std::string() : report.status().to_string();
  };
  EXPECT_NE(broken([](auto&, const fs::path& c) {
              fs::remove(c / "model-00003-of-00003.safetensors");
            }).find("model-00003-of-00003.safetensors"),
            std::string::npos);
  EXPECT_NE(
      broken([](auto& index, auto&) {
        index["weight_map"]["lm_head.weight"] = "model-00002-of-00003.safetensors";
      }).find("tensor lm_head.weight, expected in model-00002-of-00003.safetensors, found in model-00001"),
      std::string::npos);
  EXPECT_NE(broken([](auto& index, auto&) {
              index["weight_map"].erase("lm_head.weight");
            }).find("not in the index"),
            std::string::npos);
  EXPECT_NE(broken([](auto& index, auto&) {
              index["weight_map"]["ghost"] = "model-00002-of-00003.safetensors";
            }).find("tensor ghost"),
            std::string::npos);
  EXPECT_NE(broken([](auto& index, auto&) {
              index["weight_map"]["lm_head.weight"] = "../x.safetensors";
            }).find("no file name"),
            std::string::npos);
  EXPECT_NE(broken([](auto& index, auto&) {
              index = {{"metadata", 1}};
            }).find("no weight_map"),
            std::string::npos);
  EXPECT_NE(
      broken([](auto& index, auto&) { index["weight_map"]["lm_head.weight"] = 3; }).find("must hold strings"),
      std::string::npos);
  EXPECT_NE(broken([](auto&, const fs::path& c) {
              test::write_file(c / "model-00002-of-00003.safetensors",
                               test::read_file(c / "model-00001-of-00003.safetensors"));
            }).find("two shards"),
            std::string::npos);
}

TEST(RefusedCheckpoint, RefusesFoldersThatAreNoCheckpoint) {
  const TemporaryFolder folder;
  EXPECT_EQ(convert(folder / "none", folder / "out").status().code(), ErrorCode::not_found);
  test::write_file(folder / "file", "x");
  EXPECT_FALSE(convert(folder / "file", folder / "out"));
  fs::create_directories(folder / "empty");
  EXPECT_NE(convert(folder / "empty", folder / "out").status().to_string().find("config.json"),
            std::string::npos);
  test::write_file(folder / "empty/config.json", test::read_file(kGolden + "olmoe/config.json"));
  EXPECT_NE(convert(folder / "empty", folder / "out").status().to_string().find("no weights"),
            std::string::npos);
  test::write_file(folder / "empty/pytorch_model.bin", "x");
  EXPECT_NE(convert(folder / "empty", folder / "out").status().to_string().find("pytorch_model.bin"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(RefusedCheckpoint, RefusesWrongOptions) {
  const TemporaryFolder folder;
  EXPECT_FALSE(convert(kGolden + "olmoe", folder / "out", "int9"));
  EXPECT_FALSE(convert(kGolden + "olmoe", folder / "out", "auto", 0));
  EXPECT_FALSE(convert(kGolden + "olmoe", folder / "out", "auto", 5000));
  EXPECT_FALSE(convert(kGolden + "olmoe", folder / "out", "auto", 1U << 31));
  EXPECT_FALSE(fs::exists(folder / "out"));
}

}  // namespace
}  // namespace colibri
