// Synthetic models: their shapes have the published numbers of parameters, their containers are
// whole, and a run that was stopped goes on.
#include "io/checkpoint/synthetic_model.hpp"

#include <gtest/gtest.h>

#include "io/container/container.hpp"
#include "io/container/dense_layout.hpp"
#include "tests/checkpoint/temporary_folder.hpp"

namespace colibri {
namespace {

using test::TemporaryFolder;

double parameters(const ModelSpec& spec, bool experts_only = false) {
  double all = 3.0 * spec.hidden_size * spec.intermediate_size * spec.num_experts * spec.num_moe_layers();
  if (experts_only) return all;
  for (const DenseSlot& slot : dense_slots(spec)) all += static_cast<double>(slot.rows) * slot.columns;
  return all;
}

TEST(SyntheticModel, ShapesHaveThePublishedNumbersOfParameters) {
  const struct {
    const char* shape;
    double billions;
    double tolerance;
  } published[] = {{"olmoe-1b-7b", 6.92, 0.01}, {"qwen3-30b-a3b", 30.5, 0.1}, {"mixtral-8x7b", 46.7, 0.1}};
  for (const auto& one : published) {
    const auto spec = synthetic_model_spec({.shape = one.shape});
    ASSERT_TRUE(spec.is_ok()) << spec.status().to_string();
    EXPECT_NEAR(parameters(*spec) / 1e9, one.billions, one.tolerance) << one.shape;
  }
  // 58 layers of 256 experts [2048, 7168]; attention is not the model's own.
  const auto deepseek = synthetic_model_spec({.shape = "deepseek-v3"});
  ASSERT_TRUE(deepseek.is_ok());
  EXPECT_EQ(parameters(*deepseek, true), 58.0 * 256 * 3 * 2048 * 7168);
  EXPECT_EQ(deepseek->router.num_groups, 8U);
  EXPECT_EQ(deepseek->shared_expert.intermediate_size, 2048U);
}

TEST(SyntheticModel, FewLayersKeepOneWithExperts) {
  for (const std::uint32_t layers : {1U, 2U, 3U, 4U}) {
    const auto spec = synthetic_model_spec({.shape = "deepseek-v3", .layers = layers});
    ASSERT_TRUE(spec.is_ok()) << spec.status().to_string();
    EXPECT_EQ(spec->num_layers(), layers);
    EXPECT_EQ(spec->num_moe_layers(), 1U);
  }
}

TEST(SyntheticModel, WeightsDecideTheSizeOfARecord) {
  // OLMoE: three matrices of 2048 by 1024.
  for (const auto& [weights, bits] : {std::pair{"bf16", 16.0}, {"int8", 8.5}, {"int4", 4.5}}) {
    const auto spec = synthetic_model_spec({.shape = "olmoe-1b-7b", .layers = 1, .weights = weights});
    ASSERT_TRUE(spec.is_ok()) << spec.status().to_string();
    EXPECT_EQ(spec->weights_option, weights);
    const auto layout = expert_layout(spec->weight_dtype, spec->hidden_size, spec->intermediate_size);
    ASSERT_TRUE(layout.is_ok());
    EXPECT_EQ(static_cast<double>(layout->payload_bytes), 3.0 * 2048 * 1024 * bits / 8);
  }
}

TEST(SyntheticModel, WrongOptionsAreNamed) {
  auto text = [](SyntheticModelOptions options) {
    return synthetic_model_spec(options).status().to_string();
  };
  EXPECT_NE(text({.shape = "mixtral"}).find("unknown shape 'mixtral'; expected one of olmoe-1b-7b"),
            std::string::npos);
  EXPECT_NE(text({.shape = "olmoe-1b-7b", .layers = 5000}).find("too many layers: 5000; at most 1024"),
            std::string::npos);
  EXPECT_NE(text({.shape = "olmoe-1b-7b", .weights = "int3"}).find("allowed are f32, bf16, int8, int4"),
            std::string::npos);
  EXPECT_NE(text({.shape = "olmoe-1b-7b", .skew = -1}).find("from 0 to 4"), std::string::npos);
}

// 0.6 GB each time.
TEST(SyntheticModelBig, ContainerIsWholeAndAStoppedRunGoesOn) {
  TemporaryFolder folder;
  SyntheticModelOptions options{.shape = "olmoe-1b-7b", .layers = 1, .skew = 0.5};
  int steps = 0;
  options.cancelled = [&steps] { return ++steps > 40; };  // among the experts
  const auto stopped = write_synthetic_model(folder.path() / "stopped", options);
  ASSERT_FALSE(stopped.is_ok());
  EXPECT_EQ(stopped.status().code(), ErrorCode::cancelled);
  options.cancelled = {};
  const auto resumed = write_synthetic_model(folder.path() / "stopped", options);
  ASSERT_TRUE(resumed.is_ok()) << resumed.status().to_string();
  EXPECT_TRUE(resumed->resumed);
  const auto whole = write_synthetic_model(folder.path() / "whole", options);
  ASSERT_TRUE(whole.is_ok()) << whole.status().to_string();
  EXPECT_TRUE(verify_container(folder.path() / "stopped", {}).is_ok());
  EXPECT_EQ(Container::open(folder.path() / "stopped").value()->digest(),
            Container::open(folder.path() / "whole").value()->digest());
}

}  // namespace
}  // namespace colibri
