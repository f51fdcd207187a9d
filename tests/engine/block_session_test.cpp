// BlockSession: the answers of calls are what the goldens and the block pipeline's jobs say, whoever asks and
// however they are cut; what is wrong with a call is refused by name.
#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>

#include <atomic>
#include <cmath>
#include <future>
#include <limits>
#include <map>
#include <thread>

#include "io/checkpoint/safetensors.hpp"
#include "tests/engine/block_session_fixture.hpp"

namespace colibri::testing {
namespace {

constexpr float kRelativeTolerance = 1e-4F;
constexpr float kWeightTolerance = 1e-4F;

class GoldenSession : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenSession, AnswersWhatTheGoldenSays) {
  const auto engine = open_block(golden_container(GetParam(), "config.json", "auto"),
                                 {{"memory.experts", "50%"}, {"steps.max_rows", "7"}});
  ASSERT_NE(engine, nullptr);
  const auto session = start(*engine);
  ASSERT_NE(session, nullptr);
  const auto file = SafetensorsFile::open(golden_folder(GetParam()) / "golden.safetensors");
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  std::size_t compared = 0;
  for (const GoldenCase& one : golden_cases(GetParam())) {
    for (const GoldenRouting& routing : one.routing) {
      const std::string layer = std::to_string(routing.layer);
      Rows rows(engine->spec(), routing.layer, file->read_f32("moe_input." + layer).value());
      const BlockAnswer answer = session->run(rows.call());
      ASSERT_TRUE(answer.status.is_ok()) << answer.status.to_string();
      EXPECT_GT(answer.latency_seconds, 0);
      const std::vector<float> expected = file->read_f32("moe_output." + layer).value();
      ASSERT_EQ(rows.output.size(), expected.size());
      float largest = 0, difference = 0;
      for (std::size_t v = 0; v < expected.size(); ++v) {
        largest = std::max(largest, std::fabs(expected[v]));
        difference = std::max(difference, std::fabs(expected[v] - rows.output[v]));
      }
      EXPECT_LT(difference, kRelativeTolerance * largest) << "layer " << layer;
      ASSERT_EQ(routing.experts.size(), rows.rows);
      for (std::size_t row = 0; row < rows.rows; ++row) {
        std::map<std::uint32_t, float> picks;
        for (std::size_t k = 0; k < rows.k; ++k) picks[routing.experts[row][k]] = routing.weights[row][k];
        std::size_t k = row * rows.k;
        for (const auto& [expert, weight] : picks) {
          ASSERT_EQ(rows.experts[k], expert) << "layer " << layer << " row " << row;
          EXPECT_NEAR(rows.weights[k++], weight, kWeightTolerance);
        }
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 0U);
  EXPECT_TRUE(session->close().is_ok());
}

INSTANTIATE_TEST_SUITE_P(Goldens, GoldenSession, ::testing::ValuesIn(golden_names()),
                         [](const auto& info) { return info.param; });

TEST_F(BlockSessions, EqualToAJobToTheBitWhateverTheSteps) {
  ASSERT_FALSE(engine_->spec().layers[1].moe);
  const std::deque<Rows> asked = some_rows();
  const auto outputs = outputs_of_a_job(*open_block(container_, {{"memory.experts", "100%"}}), asked);
  const std::deque<Rows> expected = answered(asked, *engine_);
  for (const Settings& settings :
       {Settings{{"steps.max_rows", "1"}, {"memory.experts", "min"}}, Settings{{"steps.max_rows", "512"}},
        Settings{{"steps.max_rows", "9"}, {"steps.wave_rows", "4"}, {"steps.in_flight", "3"}}}) {
    const auto engine = open_block(container_, settings);
    ASSERT_NE(engine, nullptr);
    std::deque<Rows> rows = answered(asked, *engine);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(bits(rows[i].output), bits(outputs[i])) << i;
      EXPECT_TRUE(rows[i].same_answer(expected[i])) << i;
    }
  }
}

TEST_F(BlockSessions, TheSameFromManyCallsAtATimeAndInPlace) {
  const std::deque<Rows> asked = some_rows();
  const std::deque<Rows> expected = answered(asked, *engine_);
  const auto engine =
      open_block(container_, {{"steps.max_rows", "8"}, {"steps.wave_rows", "3"}, {"steps.in_flight", "2"}});
  const auto session = start(*engine);
  ASSERT_NE(session, nullptr);
  std::deque<Rows> rows = asked;
  std::vector<SubmittedBlock> calls;
  std::atomic<int> told = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    BlockCall call = rows[i].call();
    if (i % 2 == 0) call.output = rows[i].input.data();
    if (i % 3 == 0) call.weights = nullptr;
    auto submitted = session->submit(call, [&](const BlockAnswer& answer) {
      EXPECT_TRUE(answer.status.is_ok()) << answer.status.to_string();
      ++told;
    });
    ASSERT_TRUE(submitted.is_ok()) << submitted.status().to_string();
    calls.push_back(*submitted);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(calls[i].wait().status.is_ok());
    EXPECT_TRUE(calls[i].done());
    EXPECT_EQ(bits(i % 2 == 0 ? rows[i].input : rows[i].output), bits(expected[i].output)) << i;
    EXPECT_EQ(rows[i].experts, expected[i].experts);
    if (i % 3 != 0) {
      EXPECT_EQ(bits(rows[i].weights), bits(expected[i].weights));
    }
  }
  EXPECT_EQ(told, static_cast<int>(rows.size())) << "wait returns after the callback has";
  const auto report = session->close();
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_GT(report->steps, rows.size());
  EXPECT_EQ(session->stats().steps, report->steps);
}

// With two steps in flight a cancelled call may have rows under way while the next one is pulled.
TEST_F(BlockSessions, FromManyThreads) {
  const std::deque<Rows> asked = some_rows(8);
  const std::deque<Rows> expected = answered(asked, *engine_);
  const auto engine =
      open_block(container_, {{"memory.experts", "50%"}, {"steps.max_rows", "16"}, {"steps.in_flight", "2"}});
  ASSERT_NE(engine, nullptr);
  const auto session = start(*engine);
  ASSERT_NE(session, nullptr);
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(static_cast<std::uint32_t>(thread));
      for (int round = 0; round < 12; ++round) {
        const std::size_t which = random() % asked.size();
        Rows rows = asked[which];
        auto submitted = session->submit(rows.call());
        ASSERT_TRUE(submitted.is_ok()) << submitted.status().to_string();
        if (random() % 3 == 0) submitted->cancel();
        const BlockAnswer answer = submitted->wait();
        if (!answer.status) {
          EXPECT_EQ(answer.status.code(), ErrorCode::cancelled) << answer.status.to_string();
        } else {
          EXPECT_TRUE(rows.same_answer(expected[which]));
        }
        (void)session->stats();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(session->close().is_ok());
}

TEST_F(BlockSessions, CallbacksMaySubmit) {
  const std::deque<Rows> asked = some_rows(1);
  const std::deque<Rows> expected = answered(asked, *engine_);
  const auto session = start(*engine_);
  ASSERT_NE(session, nullptr);
  std::deque<Rows> rows(20, asked[0]);
  std::promise<void> all;
  std::function<void(std::size_t)> submit = [&](std::size_t i) {
    if (i == rows.size()) return all.set_value();
    auto submitted = session->submit(rows[i].call(), [&submit, i](const BlockAnswer& answer) {
      EXPECT_TRUE(answer.status.is_ok());
      submit(i + 1);
    });
    EXPECT_TRUE(submitted.is_ok()) << submitted.status().to_string();
  };
  submit(0);
  all.get_future().wait();
  EXPECT_TRUE(session->close().is_ok());
  for (const Rows& one : rows) EXPECT_TRUE(one.same_answer(expected[0]));
}

TEST_F(BlockSessions, WhatIsWrongWithACallIsRefusedByName) {
  const auto session = start(*engine_);
  ASSERT_NE(session, nullptr);
  const ModelSpec& spec = engine_->spec();
  const std::uint32_t hidden = spec.hidden_size, k = spec.num_experts_per_token;
  Rows rows(spec, 0, std::vector<float>(std::size_t{4} * hidden, 1.0F));
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  auto shifted = [](auto* pointer, std::ptrdiff_t bytes) {
    return reinterpret_cast<decltype(pointer)>(reinterpret_cast<std::uintptr_t>(pointer) + bytes);
  };
  struct Case {
    std::function<void(BlockCall&)> wrong;
    std::string message;
  };
  const Case cases[] = {
      {[](BlockCall& call) { call.layer = 1; },
       "the call is for a layer without experts: layer 1; the model has experts in layers 0, 2"},
      {[](BlockCall& call) { call.layer = 4'000'000'000; }, "without experts: layer 4000000000"},
      {[](BlockCall& call) { call.rows = 0; }, "number of rows that the model does not take: 0; give 1 to "},
      {[&](BlockCall& call) { call.rows = spec.max_seq_len + 1; },
       std::to_string(spec.max_seq_len + 1) + "; give 1 to " + std::to_string(spec.max_seq_len)},
      {[](BlockCall& call) { call.input = nullptr; }, "missing: input is null; give memory of "},
      {[](BlockCall& call) { call.output = nullptr; }, "missing: output is null"},
      {[&](BlockCall& call) { call.input = shifted(rows.input.data(), 2); },
       "not aligned to its values: input"},
      {[&](BlockCall& call) { call.output = shifted(rows.output.data(), 1); },
       "aligned to its values: output"},
      {[&](BlockCall& call) { call.experts = shifted(rows.experts.data(), 3); }, "its values: experts"},
      {[&](BlockCall& call) { call.weights = shifted(rows.weights.data(), 2); }, "its values: weights"},
      {[](BlockCall& call) { call.output = reinterpret_cast<float*>(~std::uintptr_t{3}); },
       "ends outside of the address space: output"},
      {[&](BlockCall& call) { call.output = rows.input.data() + 1; },
       "arrays of the call overlap: input and output"},
      {[&](BlockCall& call) {
         call.input = rows.output.data() + hidden;
         call.rows = 3;
       },
       "overlap: input and output"},
      {[&](BlockCall& call) { call.weights = rows.input.data(); }, "overlap: input and weights"},
      {[&](BlockCall& call) {
         call.experts = reinterpret_cast<std::uint32_t*>(rows.output.data()) + 4 * hidden - 1;
       },
       "overlap: output and experts"},
      {[&](BlockCall& call) { call.weights = reinterpret_cast<float*>(rows.experts.data()) + k; },
       "overlap: experts and weights"},
      {[&](BlockCall& call) {
         call.output = rows.input.data();
         call.weights = rows.input.data();
       },
       "overlap: input and weights"},
      {[&](BlockCall&) { rows.input[2 * hidden + 5] = kNan; },
       "the input of the call holds a value that is not finite: row 2, column 5; correct it"},
      {[&](BlockCall&) { rows.input[hidden - 1] = -kInfinite; },
       "not finite: row 0, column " + std::to_string(hidden - 1)},
  };
  for (const Case& one : cases) {
    rows.input.assign(rows.input.size(), 1.0F);
    BlockCall call = rows.call();
    one.wrong(call);
    bool told = false;
    const Status checked = session->check(call);
    EXPECT_EQ(checked.code(), ErrorCode::invalid_input) << one.message;
    EXPECT_NE(checked.to_string().find(one.message), std::string::npos) << checked.to_string();
    EXPECT_EQ(session->submit(call, [&](const BlockAnswer&) { told = true; }).status().to_string(),
              checked.to_string());
    EXPECT_EQ(session->run(call).status.to_string(), checked.to_string());
    EXPECT_FALSE(told);
  }
  rows.input.assign(rows.input.size(), 1.0F);
  EXPECT_TRUE(session->check(rows.call()).is_ok());
  EXPECT_EQ(session->close()->steps, 0U) << "nothing of this was computed";
}

TEST_F(BlockSessions, WithOneThreadAllowed) {
  const std::deque<Rows> asked = some_rows();
  const std::deque<Rows> expected = answered(asked, *engine_);
  const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  const std::deque<Rows> rows = answered(asked, *engine_);
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(rows[i].same_answer(expected[i])) << i;
  EXPECT_EQ(tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism), 1U);
}

}  // namespace
}  // namespace colibri::testing
