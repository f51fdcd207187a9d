// Calls of block sessions for tests: their memory, and what they must come to.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <colibri/block_session.hpp>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/golden_model.hpp"
#include "tests/support/hidden_job.hpp"
#include "tests/support/hooked_stages.hpp"
#include "tests/support/watchdog.hpp"

namespace colibri::testing {

using Settings = std::vector<std::pair<std::string, std::string>>;
inline constexpr const char* kBlockModel = "qwen2_moe";  // shared expert; layer 1 is dense

inline std::unique_ptr<Engine> open_block(const std::filesystem::path& container,
                                          const Settings& settings = {}, const Registry* registry = nullptr) {
  auto engine =
      Engine::open(container, pipeline_from(block_pipeline_yaml(), settings), {.registry = registry});
  EXPECT_TRUE(engine.is_ok()) << engine.status().to_string();
  return engine ? std::move(engine).value() : nullptr;
}

inline std::unique_ptr<BlockSession> start(Engine& engine) {
  auto session = BlockSession::start(engine);
  EXPECT_TRUE(session.is_ok()) << session.status().to_string();
  return session ? std::move(session).value() : nullptr;
}

inline std::vector<std::uint32_t> bits(std::span<const float> values) {
  std::vector<std::uint32_t> all;
  for (const float value : values) all.push_back(std::bit_cast<std::uint32_t>(value));
  return all;
}

// A call with all of its memory. It must stay where it is until the answer.
struct Rows {
  Rows(const ModelSpec& spec, std::uint32_t layer, std::vector<float> values)
      : layer(layer),
        rows(static_cast<std::uint32_t>(values.size() / spec.hidden_size)),
        k(spec.num_experts_per_token),
        input(std::move(values)),
        output(input.size(), -7.0F),
        experts(std::size_t{rows} * k, 77'777),
        weights(std::size_t{rows} * k, -7.0F) {}
  BlockCall call() {
    return {.layer = layer,
            .rows = rows,
            .input = input.data(),
            .output = output.data(),
            .experts = experts.data(),
            .weights = weights.data()};
  }
  bool same_answer(const Rows& other) const {
    return bits(output) == bits(other.output) && experts == other.experts &&
           bits(weights) == bits(other.weights);
  }
  std::uint32_t layer, rows, k;
  std::vector<float> input, output;
  std::vector<std::uint32_t> experts;
  std::vector<float> weights;
};

// An engine of small steps; stages are hooked.
class BlockSessions : public ::testing::Test {
 protected:
  void SetUp() override {
    container_ = golden_container(kBlockModel, "config.json", "auto");
    engine_ = open_block(container_, {{"memory.experts", "50%"}, {"steps.max_rows", "16"}}, &registry_);
    ASSERT_NE(engine_, nullptr);
  }

  // Calls of unequal sizes, in no order of layers.
  std::deque<Rows> some_rows(std::size_t count = 12, std::uint32_t seed = 5) const {
    std::deque<Rows> all;
    std::mt19937 random(seed);
    std::normal_distribution<float> value;
    const std::uint32_t layers[] = {0, 2};
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<float> values((1 + random() % 60) * engine_->spec().hidden_size);
      for (float& one : values) one = value(random);
      all.emplace_back(engine_->spec(), layers[random() % 2], std::move(values));
    }
    return all;
  }
  // What a job of its own says of the outputs.
  static std::vector<std::vector<float>> outputs_of_a_job(Engine& engine, const std::deque<Rows>& rows) {
    std::vector<HiddenBatch> batches;
    for (const Rows& one : rows) batches.push_back({one.layer, one.input});
    return run_block(engine, batches).outputs;
  }
  // The answers of calls made one after the other.
  std::deque<Rows> answered(std::deque<Rows> rows, Engine& engine) const {
    const auto session = start(engine);
    for (Rows& one : rows) {
      const BlockAnswer answer = session->run(one.call());
      EXPECT_TRUE(answer.status.is_ok()) << answer.status.to_string();
    }
    return rows;
  }
  void expect_usable() const {
    auto rows = some_rows(3);
    const auto expected = outputs_of_a_job(*engine_, rows);
    rows = answered(std::move(rows), *engine_);
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(bits(rows[i].output), bits(expected[i]));
  }

  const Registry registry_ = hooked_registry();
  std::filesystem::path container_;
  std::unique_ptr<Engine> engine_;
  const Watchdog watchdog_{"a test of block sessions"};
};

}  // namespace colibri::testing
