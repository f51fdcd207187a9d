// colibri_infer against the goldens of four families, and its asynchronous forms against it.
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "io/checkpoint/safetensors.hpp"
#include "tests/c_api/c_model.hpp"
#include "tests/support/golden_model.hpp"

namespace colibri::testing {
namespace {

// Those of tests/golden/README.md.
constexpr float kRelativeTolerance = 1e-4F;
constexpr float kWeightTolerance = 1e-4F;

std::vector<std::uint32_t> moe_layers(const std::filesystem::path& container) {
  CError error;
  std::uint64_t count = 0;
  EXPECT_EQ(colibri_model_spec_moe_layers(container.c_str(), nullptr, 0, &count, &error),
            COLIBRI_ERROR_BUFFER_TOO_SMALL);
  std::vector<std::uint32_t> layers(count);
  EXPECT_EQ(colibri_model_spec_moe_layers(container.c_str(), layers.data(), count, &count, &error),
            COLIBRI_OK);
  return layers;
}

class Infer : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    container_ = golden_container(GetParam(), "config.json", "auto");
    auto file = SafetensorsFile::open(golden_folder(GetParam()) / "golden.safetensors");
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
    file_ = std::make_unique<SafetensorsFile>(std::move(file).value());
  }
  std::vector<float> tensor(const std::string& name, std::uint32_t layer) const {
    return file_->read_f32(name + "." + std::to_string(layer)).value();
  }
  std::filesystem::path container_;
  std::unique_ptr<SafetensorsFile> file_;
};

TEST_P(Infer, PicksAndAddsWhatTheGoldenSays) {
  const CModel model(container_, COLIBRI_PURPOSE_BLOCKS, {"memory.experts=50%"});
  const auto layers = moe_layers(container_);
  ASSERT_FALSE(layers.empty());
  const colibri_model_spec spec = spec_of(model);
  EXPECT_EQ(layers.size(), spec.num_moe_layers);
  std::vector<std::unique_ptr<CInfer>> calls(spec.num_layers);
  for (const std::uint32_t layer : layers) {
    CInfer& call = *(calls[layer] = std::make_unique<CInfer>(spec, layer, tensor("moe_input", layer)));
    CError error;
    ASSERT_EQ(colibri_infer_check_input(model, &call.input, &error), COLIBRI_OK) << error.message;
    ASSERT_EQ(colibri_infer(model, &call.input, &call.output, &error), COLIBRI_OK) << error.message;
    EXPECT_EQ(call.output.error_code, COLIBRI_OK);
    EXPECT_GT(call.output.latency_ms, 0);
    const std::vector<float> expected = tensor("moe_output", layer);
    ASSERT_EQ(expected.size(), call.states.size());
    float largest = 0, difference = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::fabs(expected[i]));
      difference = std::max(difference, std::fabs(expected[i] - call.states[i]));
    }
    EXPECT_LT(difference, kRelativeTolerance * largest) << "layer " << layer;
  }
  std::size_t compared = 0;
  for (const GoldenCase& one : golden_cases(GetParam())) {
    for (const GoldenRouting& routing : one.routing) {
      const CInfer& call = *calls[routing.layer];
      const std::size_t k = spec.num_experts_per_token;
      for (std::size_t row = 0; row < routing.experts.size(); ++row) {
        for (std::size_t i = 0; i < k; ++i) {
          // Ascending in a row; the golden has its own order.
          if (i > 0) {
            EXPECT_LT(call.experts[row * k + i - 1], call.experts[row * k + i]);
          }
          const auto& experts = routing.experts[row];
          const auto place = std::find(experts.begin(), experts.end(), call.experts[row * k + i]);
          ASSERT_NE(place, experts.end()) << "layer " << routing.layer << " row " << row;
          EXPECT_NEAR(call.weights[row * k + i], routing.weights[row][place - experts.begin()],
                      kWeightTolerance);
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 0U);
}

struct Told {
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0;
  colibri_code code = COLIBRI_PENDING;
  colibri_call* call = nullptr;
  static void done(void* user, const colibri_infer_output* output, const colibri_error* error) {
    Told& told = *static_cast<Told*>(user);
    const std::lock_guard lock(told.mutex);
    ++told.calls;
    told.code = error == nullptr ? output->error_code : error->code;
    EXPECT_EQ(colibri_call_poll(told.call, nullptr), told.code);
    EXPECT_EQ(colibri_call_release(told.call, nullptr), COLIBRI_OK);
    told.changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return calls > 0; });
  }
};

TEST_P(Infer, AsynchronousEqualsSynchronousToTheBit) {
  const CModel model(container_, COLIBRI_PURPOSE_BLOCKS, {"memory.experts=50%"});
  const colibri_model_spec spec = spec_of(model);
  const std::uint32_t layer = moe_layers(container_).front();
  CInfer expected(spec, layer, tensor("moe_input", layer));
  ASSERT_EQ(colibri_infer(model, &expected.input, &expected.output, nullptr), COLIBRI_OK);
  const auto same = [&](const CInfer& call) {
    EXPECT_EQ(std::memcmp(call.states.data(), expected.states.data(), call.states.size() * sizeof(float)), 0);
    EXPECT_EQ(call.experts, expected.experts);
    EXPECT_EQ(std::memcmp(call.weights.data(), expected.weights.data(), call.weights.size() * sizeof(float)),
              0);
    EXPECT_EQ(call.output.error_code, COLIBRI_OK);
    EXPECT_GT(call.output.latency_ms, 0);
  };
  CError error;
  {  // by waiting
    CInfer call(spec, layer, expected.values);
    colibri_call* handle = nullptr;
    ASSERT_EQ(colibri_infer_async(model, &call.input, &call.output, nullptr, nullptr, &handle, &error),
              COLIBRI_OK);
    EXPECT_EQ(colibri_call_wait(handle, -1, &error), COLIBRI_OK) << error.message;
    same(call);
    EXPECT_EQ(colibri_call_release(handle, &error), COLIBRI_OK);
  }
  {  // by polling
    CInfer call(spec, layer, expected.values);
    colibri_call* handle = nullptr;
    ASSERT_EQ(colibri_infer_async(model, &call.input, &call.output, nullptr, nullptr, &handle, &error),
              COLIBRI_OK);
    colibri_code code = COLIBRI_PENDING;
    while ((code = colibri_call_poll(handle, &error)) == COLIBRI_PENDING) std::this_thread::yield();
    EXPECT_EQ(code, COLIBRI_OK);
    same(call);
    EXPECT_EQ(colibri_call_release(handle, &error), COLIBRI_OK);
  }
  {  // by a callback, which releases the call
    CInfer call(spec, layer, expected.values);
    Told told;
    ASSERT_EQ(colibri_infer_async(model, &call.input, &call.output, Told::done, &told, &told.call, &error),
              COLIBRI_OK);
    told.wait();
    EXPECT_EQ(told.code, COLIBRI_OK);
    same(call);
  }
  {  // in place, by several threads at a time
    std::vector<std::unique_ptr<CInfer>> calls;
    for (int i = 0; i < 4; ++i) {
      calls.push_back(std::make_unique<CInfer>(spec, layer, expected.values));
      calls.back()->output.hidden_states = calls.back()->values.data();
    }
    std::vector<std::thread> threads;
    for (auto& call : calls) {
      threads.emplace_back([&, call = call.get()] {
        EXPECT_EQ(colibri_infer(model, &call->input, &call->output, nullptr), COLIBRI_OK);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& call : calls) {
      call->states = call->values;
      same(*call);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Infer, ::testing::Values("mixtral", "olmoe", "qwen2_moe", "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace colibri::testing
