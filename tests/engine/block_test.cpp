// The experts alone (configs/block.yaml): what the goldens say, to the bit what the whole pipeline computes,
// whatever the steps, waves and slots; and what is not right costs its rows, or ends the job by name.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "io/checkpoint/safetensors.hpp"
#include "io/read/aligned_region.hpp"
#include "io/read/fault_backend.hpp"
#include "runtime/engine/step_scheduler.hpp"
#include "runtime/memory/step_buffers.hpp"
#include "tests/support/golden_model.hpp"
#include "tests/support/hidden_job.hpp"
#include "tests/support/stage_harness.hpp"

namespace colibri::testing {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;
constexpr float kRelativeTolerance = 1e-4F;
constexpr float kWeightTolerance = 1e-4F;

std::unique_ptr<Engine> open_block(const std::filesystem::path& container, const Settings& settings = {}) {
  return open_pipeline(container, pipeline_from(config_text("block.yaml"), settings));
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> all;
  for (const float value : values) all.push_back(std::bit_cast<std::uint32_t>(value));
  return all;
}

std::vector<std::uint32_t> moe_layers(const ModelSpec& spec) {
  std::vector<std::uint32_t> layers;
  for (std::uint32_t layer = spec.next_moe_layer(0); layer < spec.num_layers();
       layer = spec.next_moe_layer(layer + 1))
    layers.push_back(layer);
  return layers;
}

class Block : public ::testing::TestWithParam<std::string> {};

TEST_P(Block, ComputesWhatTheGoldenSays) {
  const auto engine =
      open_block(golden_container(GetParam(), "config.json", "auto"), {{"memory.experts", "50%"}});
  ASSERT_NE(engine, nullptr);
  const auto file = SafetensorsFile::open(golden_folder(GetParam()) / "golden.safetensors");
  ASSERT_TRUE(file.is_ok()) << file.status().to_string();
  std::vector<HiddenBatch> batches;
  for (const std::uint32_t layer : moe_layers(engine->spec()))
    batches.push_back({layer, file->read_f32("moe_input." + std::to_string(layer)).value()});
  ASSERT_FALSE(batches.empty());
  ValueRecorder recorder;
  const BlockRun run = run_block(*engine, batches, {.trace = &recorder});
  EXPECT_TRUE(run.failed.empty());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::vector<float> expected =
        file->read_f32("moe_output." + std::to_string(batches[i].layer)).value();
    ASSERT_EQ(run.outputs[i].size(), expected.size());
    float largest = 0, difference = 0;
    for (std::size_t v = 0; v < expected.size(); ++v) {
      largest = std::max(largest, std::fabs(expected[v]));
      difference = std::max(difference, std::fabs(expected[v] - run.outputs[i][v]));
    }
    EXPECT_LT(difference, kRelativeTolerance * largest) << "layer " << batches[i].layer;
  }
  for (const GoldenCase& one : golden_cases(GetParam())) {
    for (const GoldenRouting& routing : one.routing) {
      for (std::uint32_t row = 0; row < routing.experts.size(); ++row) {
        const auto& picks = recorder.picks[{routing.layer, row}];
        ASSERT_EQ(picks.size(), routing.experts[row].size());
        for (std::size_t k = 0; k < picks.size(); ++k) {
          const auto pick = picks.find(routing.experts[row][k]);
          ASSERT_NE(pick, picks.end()) << "layer " << routing.layer << " row " << row;
          EXPECT_NEAR(pick->second, routing.weights[row][k], kWeightTolerance);
        }
      }
    }
  }
}

TEST_P(Block, EqualsTheWholePipelineToTheBit) {
  for (const char* weights : {"auto", "int8", "int4"}) {
    const auto container = golden_container(GetParam(), "config.json", weights);
    const auto whole = open_engine(container, Settings{{"memory.experts", "50%"}});
    const auto block = open_block(container, {{"memory.experts", "50%"}, {"steps.wave_rows", "5"}});
    ASSERT_TRUE(whole != nullptr && block != nullptr);
    ValueRecorder recorder;
    run_job(*whole, {score_request(golden_cases(GetParam()).at(2).prompt)}, {.trace = &recorder});
    std::vector<HiddenBatch> batches;
    for (const std::uint32_t layer : moe_layers(whole->spec())) {
      batches.push_back({layer, recorder.tensor("moe_input", layer)});
      ASSERT_FALSE(batches.back().values.empty());
    }
    const BlockRun run = run_block(*block, batches);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      EXPECT_EQ(bits(run.outputs[i]), bits(recorder.tensor("moe_output", batches[i].layer)))
          << weights << " layer " << batches[i].layer;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Block, ::testing::ValuesIn(golden_names()),
                         [](const auto& info) { return info.param; });

constexpr const char* kModel = "qwen2_moe";  // shared expert; layer 1 is dense

class BlockJob : public ::testing::Test {
 protected:
  void SetUp() override { container_ = golden_container(kModel, "config.json", "auto"); }

  // Several batches a layer, of unequal sizes, in no order of layers.
  static std::vector<HiddenBatch> batches(const ModelSpec& spec) {
    std::vector<HiddenBatch> all;
    std::mt19937 random(5);
    std::normal_distribution<float> values;
    const std::vector<std::uint32_t> layers = moe_layers(spec);
    for (const std::size_t rows : {41, 1, 90, 7, 64, 3}) {
      HiddenBatch batch{layers[all.size() % layers.size()], std::vector<float>(rows * spec.hidden_size)};
      for (float& value : batch.values) value = values(random);
      all.push_back(std::move(batch));
    }
    return all;
  }
  static std::vector<std::vector<std::uint32_t>> all_bits(const BlockRun& run) {
    std::vector<std::vector<std::uint32_t>> all;
    for (const std::vector<float>& output : run.outputs) all.push_back(bits(output));
    return all;
  }
  // The rows of one engine, all experts resident.
  BlockRun reference(const std::vector<HiddenBatch>& batches) const {
    const auto engine = open_block(container_, {{"memory.experts", "100%"}});
    return run_block(*engine, batches);
  }
  void expect_usable(Engine& engine) const {
    const auto some = batches(engine.spec());
    EXPECT_EQ(all_bits(run_block(engine, some)), all_bits(reference(some)));
  }
  std::filesystem::path container_;
};

TEST_F(BlockJob, EqualToTheBitWhateverTheSettings) {
  std::vector<std::vector<std::uint32_t>> expected;
  for (const Settings& settings :
       {Settings{{"memory.experts", "100%"}, {"threads", "1"}}, Settings{{"memory.experts", "min"}},
        Settings{{"memory.experts", "25%"}, {"steps.max_rows", "16"}, {"steps.wave_rows", "3"}},
        Settings{{"memory.experts", "min"}, {"steps.max_rows", "10"}, {"steps.in_flight", "2"}},
        Settings{{"memory.experts", "50%"},
                 {"steps.max_rows", "24"},
                 {"steps.wave_rows", "8"},
                 {"steps.in_flight", "3"}},
        Settings{{"memory.experts", "25%"}, {"steps.max_rows", "1"}},
        Settings{{"memory.experts", "25%"}, {"stages.fetch.backend", "pread"}, {"steps.wave_rows", "1"}},
        Settings{
            {"memory.experts", "25%"}, {"stages.transfer.mode", "copy"}, {"stages.transfer.staging", "1"}}}) {
    const auto engine = open_block(container_, settings);
    ASSERT_NE(engine, nullptr);
    const auto some = batches(engine->spec());
    const BlockRun run = run_block(*engine, some);
    EXPECT_TRUE(run.failed.empty());
    if (expected.empty()) expected = all_bits(run);
    EXPECT_EQ(all_bits(run), expected) << settings.back().first << " " << settings.back().second;
    EXPECT_EQ(run.report.bytes_read, run.report.distinct_bytes);
    std::uint64_t steps = 0;
    const std::uint64_t max_rows = engine->plan().inputs.max_rows;
    for (const HiddenBatch& batch : some)
      steps += (batch.values.size() / engine->spec().hidden_size + max_rows - 1) / max_rows;
    EXPECT_EQ(run.report.steps, steps);
  }
}

TEST_F(BlockJob, EqualToTheBitInAnyOrderOfWork) {
  const auto engine = open_block(container_, {{"memory.experts", "min"},
                                              {"steps.max_rows", "20"},
                                              {"steps.wave_rows", "6"},
                                              {"steps.in_flight", "2"}});
  ASSERT_NE(engine, nullptr);
  const auto some = batches(engine->spec());
  const auto expected = all_bits(reference(some));
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    StepScheduler scheduler(seed);
    std::mt19937_64 random(seed);
    const BlockRun run = run_block(
        *engine, some, {.stepped = &scheduler, .inject_blocking = [&] { return random() % 4 == 0; }});
    EXPECT_EQ(all_bits(run), expected) << "seed " << seed;
  }
}

// A step is built while another one is on its way, and none without a free step.
TEST_F(BlockJob, StepsOverlap) {
  const auto engine =
      open_block(container_, {{"steps.max_rows", "8"}, {"steps.wave_rows", "4"}, {"steps.in_flight", "2"}});
  ASSERT_NE(engine, nullptr);
  const std::uint64_t bytes = 2 * step_bytes(engine->plan().inputs);
  const auto memory = AlignedRegion::create(bytes);
  ASSERT_TRUE(memory.is_ok());
  StepPool pool(engine->plan().inputs, 0, memory->bytes());
  const std::uint32_t hidden = engine->spec().hidden_size;
  BatchSource source({{0, std::vector<float>(20 * hidden, 1.0F)}}, hidden);
  Services services;
  services.plan = engine->plan().inputs;
  services.steps = pool.steps();
  services.hidden_source = &source;
  const Registry registry = builtin_registry();
  StageHarness block_in(*registry.find("block_in"), services);
  ASSERT_TRUE(block_in.started.is_ok());
  for (int call = 0; call < 20; ++call) block_in.resume();
  EXPECT_EQ(block_in.last_wait, Wait::input);
  EXPECT_EQ(source.pulls, 2U);
  ASSERT_EQ(block_in.level(0), 4U) << "two waves of each step";
  Message first, message;
  for (int wave = 0; wave < 4; ++wave) {
    ASSERT_TRUE(block_in.take(0, message));
    if (wave == 0) first = message;
    EXPECT_EQ(message.wave()->step == first.wave()->step, wave < 2);
    EXPECT_EQ(message.wave()->index, static_cast<std::uint32_t>(wave % 2));
  }
  block_in.send(0, {.type = MessageType::step_done, .object = first.wave()->step});
  for (int call = 0; call < 20; ++call) block_in.resume();
  EXPECT_EQ(source.pulls, 3U);
  ASSERT_TRUE(block_in.take(0, message));
  EXPECT_EQ(message.wave()->rows(), 4U) << "the last four rows";
  EXPECT_FALSE(block_in.emitter.ended) << "steps are on their way";
  for (Step& step : pool.steps()) block_in.send(0, {.type = MessageType::step_done, .object = &step});
  for (int call = 0; call < 3; ++call) block_in.resume();
  EXPECT_TRUE(block_in.emitter.ended);
}

TEST_F(BlockJob, PlansNeitherKvPagesNorHints) {
  const auto engine = open_block(container_, {{"memory.dynamic", "auto"}});
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->plan().kv_pages, 0U);
  EXPECT_EQ(engine->plan().hint_batches, 0U);
  for (const PlanLine& line : engine->plan().lines) {
    EXPECT_EQ(line.what.find("KV"), std::string::npos);
    EXPECT_EQ(line.what.find("predictor"), std::string::npos);
  }
  const MemoryPlan whole = open_engine(container_, Settings{})->plan();
  EXPECT_GT(whole.kv_pages, 0U);
  EXPECT_GT(whole.hint_batches, 0U);
  EXPECT_LT(engine->plan().dynamic_bytes, whole.dynamic_bytes);
  expect_usable(*engine);
}

TEST_F(BlockJob, RowsThatAreNoNumbersFailAlone) {
  const auto engine = open_block(container_, {{"memory.experts", "50%"}, {"steps.max_rows", "32"}});
  ASSERT_NE(engine, nullptr);
  auto some = batches(engine->spec());
  const auto expected = all_bits(reference(some));
  const std::size_t hidden = engine->spec().hidden_size;
  some[0].values[40 * hidden + 3] = std::numeric_limits<float>::quiet_NaN();
  some[2].values[0] = -std::numeric_limits<float>::infinity();
  const BlockRun run = run_block(*engine, some);
  ASSERT_EQ(run.failed.size(), 2U);
  EXPECT_EQ(run.failed[0].batch, 0U);
  EXPECT_EQ(run.failed[0].row, 40U);
  EXPECT_EQ(run.failed[0].status.to_string(),
            "the input holds a value that is not finite, in column 3; correct that row");
  EXPECT_EQ(run.failed[1].batch, 2U);
  EXPECT_EQ(run.failed[1].row, 0U);
  for (std::size_t batch = 0; batch < some.size(); ++batch) {
    const std::vector<std::uint32_t> found = bits(run.outputs[batch]);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if ((batch == 0 && i / hidden == 40) || (batch == 2 && i / hidden == 0)) {
        EXPECT_TRUE(std::isfinite(run.outputs[batch][i]));
      } else {
        ASSERT_EQ(found[i], expected[batch][i]) << "batch " << batch << " row " << i / hidden;
      }
    }
  }
}

TEST_F(BlockJob, RowsWhoseExpertCannotBeReadFailByName) {
  const auto engine = open_block(container_, {{"memory.experts", "min"}});
  ASSERT_NE(engine, nullptr);
  const auto some = batches(engine->spec());
  Job job;
  job.read_faults = std::make_shared<FaultPlan>(
      std::vector<Fault>{{.kind = FaultKind::io_error,
                          .count = 2,
                          .offset = engine->container().record(some[0].layer, 2).offset}});
  const BlockRun run = run_block(*engine, some, job);
  ASSERT_FALSE(run.failed.empty());
  for (const auto& failure : run.failed) {
    EXPECT_EQ(failure.status.code(), ErrorCode::io);
    EXPECT_NE(failure.status.to_string().find("layer " + std::to_string(some[0].layer) + ", expert 2"),
              std::string::npos)
        << failure.status.to_string();
  }
  expect_usable(*engine);
}

TEST_F(BlockJob, NeedsASourceAndASink) {
  const auto engine = open_block(container_);
  ASSERT_NE(engine, nullptr);
  BatchSource source({}, engine->spec().hidden_size);
  BatchSink sink({});
  const auto no_source = engine->run({.hidden_sink = &sink});
  ASSERT_FALSE(no_source.is_ok());
  EXPECT_NE(
      no_source.status().to_string().find("stage block_in: a pipeline with a block_in stage needs a source"),
      std::string::npos)
      << no_source.status().to_string();
  const auto no_sink = engine->run({.hidden_source = &source});
  ASSERT_FALSE(no_sink.is_ok());
  EXPECT_NE(no_sink.status().to_string().find("needs a sink for hidden states"), std::string::npos);
  expect_usable(*engine);
}

// Fails, or says something wrong, at a pull.
class WrongSource final : public BatchSource {
 public:
  using BatchSource::BatchSource;
  Result<Pull> pull(HiddenRows& rows, std::span<float> residual) override {
    auto pulled = BatchSource::pull(rows, residual);
    if (pulls == 3 && wrong) return wrong(rows);
    return pulled;
  }
  std::function<Result<Pull>(HiddenRows&)> wrong;
};

TEST_F(BlockJob, WhatTheSourceGetsWrongEndsTheJob) {
  const auto engine = open_block(container_, {{"steps.max_rows", "16"}, {"steps.in_flight", "2"}});
  ASSERT_NE(engine, nullptr);
  ASSERT_FALSE(engine->spec().layers[1].moe);
  struct Case {
    std::function<Result<HiddenSource::Pull>(HiddenRows&)> wrong;
    std::string text;
  };
  using Pull = HiddenSource::Pull;
  const Case cases[] = {
      {[](HiddenRows&) -> Result<Pull> { return Status(ErrorCode::io, "the drive is gone: test"); },
       "the drive is gone"},
      {[](HiddenRows& rows) -> Result<Pull> {
         rows.layer = 1;
         return Pull::rows;
       },
       "a layer without experts: batch 0, layer 1"},
      {[](HiddenRows& rows) -> Result<Pull> {
         rows.layer = 99;
         return Pull::rows;
       },
       "layer 99"},
      {[](HiddenRows& rows) -> Result<Pull> {
         rows.rows = 17;
         return Pull::rows;
       },
       "17 rows from 32; give 1 to 16"},
      {[](HiddenRows& rows) -> Result<Pull> {
         rows.rows = 0;
         return Pull::rows;
       },
       "0 rows"},
      {[](HiddenRows& rows) -> Result<Pull> {
         rows.first_row = 0xfffffff8U;
         rows.rows = 9;
         return Pull::rows;
       },
       "give 1 to"},
  };
  for (const Case& one : cases) {
    WrongSource source(batches(engine->spec()), engine->spec().hidden_size);
    source.wrong = one.wrong;
    const auto some = batches(engine->spec());
    BatchSink sink(some);
    const auto report = engine->run({.hidden_source = &source, .hidden_sink = &sink});
    ASSERT_FALSE(report.is_ok()) << one.text;
    EXPECT_NE(report.status().to_string().find(one.text), std::string::npos) << report.status().to_string();
    EXPECT_EQ(sink.taken, 32U) << "what was taken before is finished";
  }
  expect_usable(*engine);
}

class BrokenSink final : public BatchSink {
 public:
  using BatchSink::BatchSink;
  Status rows(const HiddenRows& rows, const HiddenResults& results) override {
    if (taken >= 20) return {ErrorCode::io, "the disk is full: test; make room"};
    return BatchSink::rows(rows, results);
  }
};

TEST_F(BlockJob, ASinkThatFailsEndsTheJob) {
  const auto engine = open_block(container_, {{"steps.max_rows", "8"}, {"steps.in_flight", "2"}});
  ASSERT_NE(engine, nullptr);
  const auto some = batches(engine->spec());
  BatchSource source(some, engine->spec().hidden_size);
  BrokenSink sink(some);
  const auto report = engine->run({.hidden_source = &source, .hidden_sink = &sink});
  ASSERT_FALSE(report.is_ok());
  EXPECT_EQ(report.status().message(), "the disk is full: test; make room");
  EXPECT_LT(source.pulls, 10U);
  expect_usable(*engine);
}

TEST_F(BlockJob, StopsBetweenSteps) {
  const auto engine = open_block(container_, {{"steps.max_rows", "8"}});
  ASSERT_NE(engine, nullptr);
  const auto some = batches(engine->spec());
  BatchSource source(some, engine->spec().hidden_size);
  BatchSink sink(some);
  const auto report = engine->run(
      {.hidden_source = &source, .hidden_sink = &sink, .stopping = [&] { return source.pulls >= 3; }});
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(sink.taken, 24U);
}

// A host that has nothing for a while: each pull waits once, and is notified from another thread.
class SlowSource final : public BatchSource {
 public:
  using BatchSource::BatchSource;
  ~SlowSource() override { join(); }
  Result<Pull> pull(HiddenRows& rows, std::span<float> residual) override {
    if (!ready_.exchange(false)) return Pull::wait;
    return BatchSource::pull(rows, residual);
  }
  void on_ready(std::function<void()> notify) override {
    join();
    if (!notify) return;
    thread_ = std::thread([this, notify = std::move(notify)] {
      ready_ = true;
      notify();
    });
  }

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  std::atomic<bool> ready_{false};
  std::thread thread_;
};

TEST_F(BlockJob, WaitsForASlowSource) {
  const auto engine = open_block(container_, {{"steps.max_rows", "16"}, {"steps.in_flight", "2"}});
  ASSERT_NE(engine, nullptr);
  const auto some = batches(engine->spec());
  SlowSource source(some, engine->spec().hidden_size);
  BatchSink sink(some);
  const auto report = engine->run({.hidden_source = &source, .hidden_sink = &sink});
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  const BlockRun expected = reference(some);
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_EQ(bits(sink.values[i]), bits(expected.outputs[i]));
}

}  // namespace
}  // namespace colibri::testing
