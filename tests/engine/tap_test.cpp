// tap: what it writes is what a trace records; what it hands on is unchanged; what it cannot write ends the
// job.
#include <gtest/gtest.h>
#include <malloc.h>

#include <bit>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/golden_model.hpp"
#include "tests/support/hidden_job.hpp"
#include "tests/support/stage_harness.hpp"

namespace colibri::testing {
namespace {

namespace fs = std::filesystem;
using Settings = std::vector<std::pair<std::string, std::string>>;
using nlohmann::json;

constexpr const char* kModel = "qwen2_moe";  // experts in layers 0 and 2

// `yaml` with a stage of kind tap on the edge that begins at `from`.
std::string with_tap(std::string yaml, const std::string& name, const std::string& from,
                     const std::string& params) {
  const std::string begin = "{from: " + from + ", to: ";
  const std::size_t at = yaml.find(begin);
  EXPECT_NE(at, std::string::npos) << from;
  yaml.replace(at, begin.size(),
               "{from: " + from + ", to: " + name + ".waves}\n  - {from: " + name + ".waves, to: ");
  yaml.insert(yaml.find("stages:\n") + 8,
              "  " + name + ": {kind: tap" + (params.empty() ? "" : ", " + params) + "}\n");
  return yaml;
}

class Tap : public ::testing::Test {
 protected:
  void SetUp() override {
    container_ = golden_container(kModel, "config.json", "auto");
    folder_ = container_.parent_path() / "taps";
    fs::create_directories(folder_);
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  static std::vector<json> lines(const std::string& path) {
    std::vector<json> all;
    std::ifstream stream(path);
    for (std::string line; std::getline(stream, line);) all.push_back(json::parse(line));
    return all;
  }
  static std::vector<Request> requests() {
    std::vector<Request> all;
    for (const GoldenCase& one : golden_cases(kModel)) {
      all.push_back(all.size() % 2 == 0 ? generate_request(one.prompt, 6) : score_request(one.prompt));
      all.back().ignore_eos = true;
    }
    return all;
  }
  static std::string answers(const JobRun& run) {
    std::string text;
    for (const RequestResult& result : run.results) {
      for (const std::int32_t token : result.tokens) text += std::to_string(token) + " ";
      for (const float value : result.prompt_logprobs)
        text += std::to_string(std::bit_cast<std::uint32_t>(value)) + " ";
    }
    return text;
  }
  Status error_of(const std::string& yaml, const Settings& settings = {}) const {
    const auto engine = open_pipeline(container_, pipeline_from(yaml, settings));
    if (engine == nullptr) return {};
    struct Source final : RequestSource {
      Pull pull(Request& request) override {
        if (given++ == 5) return Pull::end;
        request = score_request(golden_cases(kModel).at(1).prompt);
        return Pull::request;
      }
      bool finite() const override { return true; }
      void on_ready(std::function<void()>) override {}
      int given = 0;
    } source;
    struct Sink final : ResultSink {
      Status result(RequestResult&&) override { return {}; }
      Status flush() override { return {}; }
    } sink;
    return engine->run({.source = &source, .sink = &sink}).status();
  }
  fs::path container_, folder_;
};

// Values of all requests, by (name, layer, request, position).
class Recorder final : public TraceRecorder {
 public:
  bool wants_values() const override { return true; }
  bool wants_routing() const override { return true; }
  void values(std::string_view name, std::uint32_t layer, const Sequence& sequence, std::uint32_t position,
              std::span<const float> row) override {
    const std::lock_guard lock(mutex_);
    hidden[std::string(name)][{layer, sequence.request.index, position}].assign(row.begin(), row.end());
  }
  void routing(std::uint64_t, std::uint64_t, const Sequence& sequence, std::uint32_t position,
               std::uint32_t layer, std::span<const std::uint32_t> experts,
               std::span<const float> weights) override {
    const std::lock_guard lock(mutex_);
    routes[{layer, sequence.request.index, position}] = {{experts.begin(), experts.end()},
                                                         {weights.begin(), weights.end()}};
  }
  using Key = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>;
  std::map<std::string, std::map<Key, std::vector<float>>> hidden;
  std::map<Key, std::pair<std::vector<std::uint32_t>, std::vector<float>>> routes;

 private:
  std::mutex mutex_;
};

Recorder::Key key_of(const json& line) {
  EXPECT_EQ(line.at("id").get<std::string>(), std::to_string(line.at("index").get<std::uint64_t>()));
  return {line.at("layer").get<std::uint32_t>(), line.at("index").get<std::uint64_t>(),
          line.at("position").get<std::uint32_t>()};
}

TEST_F(Tap, WritesWhatATraceRecordsAndChangesNothing) {
  std::string yaml =
      with_tap(config_text("batch.yaml"), "before", "attend.routed", "file: " + file("before"));
  yaml = with_tap(yaml, "after", "combine.next_layer", "file: " + file("after"));
  yaml = with_tap(yaml, "picks", "route.waves", "what: routes, file: " + file("picks"));
  yaml = with_tap(yaml, "late_picks", "after.waves", "what: routes, file: " + file("late_picks"));
  const Settings settings = {{"memory.experts", "25%"},
                             {"steps.max_rows", "24"},
                             {"steps.wave_rows", "5"},
                             {"steps.in_flight", "2"}};
  const auto tapped = open_pipeline(container_, pipeline_from(yaml, settings));
  const auto plain = open_engine(container_, settings);
  ASSERT_TRUE(tapped != nullptr && plain != nullptr);
  Recorder trace;
  EXPECT_EQ(answers(run_job(*tapped, requests(), {.trace = &trace})), answers(run_job(*plain, requests())));

  for (const std::string where : {"before", "after"}) {
    // The trace counts states between layers: behind layer N comes number N + 1.
    const auto& recorded = trace.hidden.at(where == "before" ? "moe_input" : "hidden_states");
    std::size_t found = 0;
    for (const json& line : lines(file(where))) {
      auto key = key_of(line);
      if (where == "after") ++std::get<0>(key);
      EXPECT_EQ(line.at("hidden").get<std::vector<float>>(), recorded.at(key));
      ++found;
    }
    EXPECT_EQ(found, trace.hidden.at("moe_input").size()) << where;
  }
  for (const std::string where : {"picks", "late_picks"}) {
    std::size_t found = 0;
    for (const json& line : lines(file(where))) {
      const auto& [experts, weights] = trace.routes.at(key_of(line));
      EXPECT_EQ(line.at("experts").get<std::vector<std::uint32_t>>(), experts);
      EXPECT_EQ(line.at("weights").get<std::vector<float>>(), weights);
      ++found;
    }
    EXPECT_EQ(found, trace.routes.size()) << where;
  }
  // A second job makes the files anew.
  run_job(*tapped, {score_request({1, 2, 3})});
  EXPECT_EQ(lines(file("picks")).size(), 3U * tapped->spec().num_moe_layers());
}

TEST_F(Tap, WritesChosenLayers) {
  const ModelSpec spec = open_engine(container_, Settings{})->spec();
  const std::uint32_t first = 0;
  const std::uint32_t second = 2;
  ASSERT_TRUE(spec.layers[first].moe && !spec.layers[1].moe && spec.layers[second].moe);
  const auto layers_written = [&](const std::string& layers) {
    const auto engine = open_pipeline(
        container_, pipeline_from(with_tap(config_text("batch.yaml"), "tap", "attend.routed",
                                           "file: " + file("some") + ", layers: \"" + layers + "\""),
                                  {}));
    std::set<std::uint32_t> written;
    if (engine == nullptr) return written;
    run_job(*engine, {score_request({1, 2, 3})});
    for (const json& line : lines(file("some"))) written.insert(line.at("layer").get<std::uint32_t>());
    return written;
  };
  EXPECT_EQ(layers_written("all"), (std::set{first, second}));
  EXPECT_EQ(layers_written("2"), (std::set{second}));
  EXPECT_EQ(layers_written("0-1"), (std::set{first}));
  EXPECT_EQ(layers_written("2,0-1"), (std::set{first, second}));
}

TEST_F(Tap, RefusesLayersThatTheModelLacks) {
  const std::string yaml =
      with_tap(config_text("batch.yaml"), "tap", "attend.routed", "file: " + file("never"));
  const ModelSpec spec = open_engine(container_, Settings{})->spec();
  for (const auto& [layers, text] :
       {std::pair{std::to_string(spec.num_layers()), "names a layer that the model lacks: it has"},
        std::pair{std::string("0-4294967295"), "names a layer that the model lacks"},
        std::pair{std::string("1"), "names layers without experts"}}) {
    const auto refused = Engine::open(container_, pipeline_from(yaml, {{"stages.tap.layers", layers}}), {});
    const Status error = refused.status();
    EXPECT_EQ(error.code(), ErrorCode::invalid_input) << layers;
    EXPECT_NE(error.to_string().find("stages.tap.layers: '" + layers + "' " + text), std::string::npos)
        << error.to_string();
  }
  EXPECT_FALSE(fs::exists(file("never"))) << "refused before it is made";
}

TEST_F(Tap, FilesThatCannotBeWrittenEndTheJobByName) {
  const auto error = [&](const std::string& params) {
    return error_of(with_tap(config_text("batch.yaml"), "tap", "attend.routed", params)).to_string();
  };
  EXPECT_NE(error("file: " + file("none/file"))
                .find("stage tap: cannot create the file of a tap: " + file("none/file")),
            std::string::npos);
  const std::string full = error("file: /dev/full");
  EXPECT_NE(full.find("stage tap: cannot write the file of a tap: /dev/full: No space left on device"),
            std::string::npos)
      << full;
}

TEST_F(Tap, StandsInThePipelineOfTheExpertsAlone) {
  std::string yaml = with_tap(config_text("block.yaml"), "tap", "combine.next_layer",
                              "what: routes, file: " + file("block"));
  const auto engine = open_pipeline(container_, pipeline_from(yaml, {{"steps.max_rows", "4"}}));
  ASSERT_NE(engine, nullptr);
  const std::uint32_t layer = engine->spec().next_moe_layer(0);
  run_block(*engine, {{layer, std::vector<float>(10 * engine->spec().hidden_size, 0.5F)}});
  std::uint32_t row = 0;
  for (const json& line : lines(file("block"))) {
    EXPECT_EQ(line.at("id"), "batch 0");
    EXPECT_EQ(line.at("position"), row++);
    EXPECT_EQ(line.at("layer"), layer);
    EXPECT_EQ(line.at("experts").size(), engine->spec().num_experts_per_token);
  }
  EXPECT_EQ(row, 10U);
}

// The checker refuses routes where waves have none.
TEST_F(Tap, RoutesNeedRoutedWaves) {
  const Registry registry = builtin_registry();
  const auto infos = registry.infos();
  const auto problems = [&](const std::string& from, const std::string& what) {
    PipelineProblems found;
    const PipelineSpec spec =
        parse_pipeline(with_tap(config_text("batch.yaml"), "tap", from, "file: x, what: " + what), "p.yaml",
                       infos, {}, found);
    check_pipeline(spec, infos, found);
    std::string text;
    for (const std::string& line : found.lines) text += line + "\n";
    return text;
  };
  EXPECT_EQ(problems("combine.next_layer", "routes"), "");
  EXPECT_EQ(problems("route.waves", "routes"), "");
  EXPECT_EQ(problems("attend.routed", "hidden"), "");
  EXPECT_NE(problems("attend.routed", "routes")
                .find("stages.tap.what: 'routes' cannot be had here: attend.routed sends a wave that is "
                      "attended; expected "
                      "one that is any of routed, combined, or another value\n"),
            std::string::npos)
      << problems("attend.routed", "routes");
  EXPECT_NE(problems("embed.waves", "hidden").find("embed.waves sends a wave that is embedded"),
            std::string::npos);
  EXPECT_NE(problems("attend.finished", "hidden").find("a wave that is finished"), std::string::npos);
}

class TapStage : public Tap {
 protected:
  void SetUp() override {
    Tap::SetUp();
    engine_ = open_engine(container_, Settings{});
    services_.plan = engine_->plan().inputs;
    services_.plan.spec = &engine_->spec();
    services_.fail_job = [this](Status status) { failures_.push_back(std::move(status)); };
    const std::size_t picks = engine_->spec().num_experts_per_token;
    residual_.assign(4 * engine_->spec().hidden_size, 1.25F);
    picks_.assign(4 * picks, 1);
    weights_.assign(4 * picks, 0.5F);
    sequences_.assign(4, &sequence_);
    step_.sequences = sequences_.data();
    step_.positions = positions_;
    step_.residual = residual_.data();
    step_.picks = picks_.data();
    step_.pick_weights = weights_.data();
    step_.rows = 4;
    wave_ = {&step_, 0, 0, 4, engine_->spec().next_moe_layer(0)};
  }
  const StageKind& kind() const { return *registry_.find("tap"); }

  Registry registry_ = builtin_registry();
  std::unique_ptr<Engine> engine_;
  Services services_;
  std::vector<Status> failures_;
  std::vector<float> residual_, weights_;
  std::vector<std::uint32_t> picks_;
  std::uint32_t positions_[4] = {0, 1, 2, 3};
  Sequence sequence_;
  std::vector<Sequence*> sequences_;
  Step step_;
  Wave wave_;
};

// Where a host's ports say no state, the stage itself sees that a wave has no picks of this layer.
TEST_F(TapStage, WavesWithoutPicksOfTheirLayerEndTheJob) {
  Visit other;
  other.layer = wave_.layer + 1;
  for (Visit* visit : {static_cast<Visit*>(nullptr), &other}) {
    failures_.clear();
    wave_.visit = visit;
    StageHarness harness(kind(), services_, {.params = {{"file", file("stage")}, {"what", "routes"}}});
    ASSERT_TRUE(harness.started.is_ok()) << harness.started.to_string();
    harness.send(0, {.type = MessageType::wave, .object = &wave_});
    harness.send(0, {.type = MessageType::wave, .object = &wave_});
    ASSERT_EQ(failures_.size(), 1U) << "told once";
    EXPECT_NE(failures_[0].to_string().find("stage tap: waves were not routed"), std::string::npos);
    EXPECT_EQ(harness.level(0), 2U) << "waves go on all the same";
  }
}

TEST_F(TapStage, ItsMemoryDoesNotGrowWithTheJob) {
  StageHarness harness(kind(), services_, {.params = {{"file", "/dev/null"}}});
  ASSERT_TRUE(harness.started.is_ok()) << harness.started.to_string();
  const auto send = [&](int waves) {
    for (int i = 0; i < waves; ++i) {
      harness.send(0, {.type = MessageType::wave, .object = &wave_});
      Message out;
      EXPECT_TRUE(harness.take(0, out));
      EXPECT_EQ(out.wave(), &wave_);
    }
    return mallinfo2().uordblks;
  };
  const std::size_t few = send(50);
  // The harness keeps little of its own; the lines alone are many times this.
  EXPECT_LE(send(5000), few + (256U << 10));
  harness.end_of_input();
  EXPECT_GT(harness.count("written_bytes_total"), 4U << 20);
  EXPECT_TRUE(failures_.empty());
  EXPECT_EQ(harness.count("rows_total"), 4U * 5050);
}

}  // namespace
}  // namespace colibri::testing
